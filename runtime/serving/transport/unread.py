"""Connections whose client does not read what was sent: they are aborted, since closing one would wait for the
client."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress

SLOWEST = 256  # bytes per second; a client that reads less could hold its connection for days


class Unread(asyncio.Protocol):
    """A connection that can be given a time to be read."""

    transport: asyncio.Transport
    cut: asyncio.TimerHandle | None = None
    left = 0  # bytes that the client had not received when it was last looked at
    ended = False  # nothing more is sent

    def cut_after(self, seconds: float) -> None:
        """Aborts the connection once its client has read almost nothing (SLOWEST) for this long. Once it has
        ended, having received everything does not save it: the client does not close it."""
        self.cancel_cut()
        self.left = not_received(self.transport)
        self.cut = asyncio.get_running_loop().call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        now = not_received(self.transport)
        if self.left - now >= SLOWEST * seconds or (now == 0 and not self.ended):
            self.cut_after(seconds)
        else:
            self.transport.abort()

    def cancel_cut(self) -> None:
        if self.cut is not None:
            self.cut.cancel()
            self.cut = None


def not_received(transport: asyncio.Transport) -> int:
    """Bytes that the client has not received, including those in the kernel, which takes from this process only
    when a large part of its own buffer is free."""
    kernel = bytes(4)
    with suppress(OSError):  # not known on this system
        file = transport.get_extra_info("socket").fileno()
        kernel = fcntl.ioctl(file, termios.TIOCOUTQ, kernel)
    return transport.get_write_buffer_size() + int(struct.unpack("i", kernel)[0])
