"""Connections whose client does not read what was sent: they are aborted, since closing one would wait for the
client."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress
from typing import Any

SLOWEST = 256  # bytes per second; a client that reads less could hold its connection for days


class Unread(asyncio.Protocol):
    """Comes before uvicorn's protocol among the base classes."""

    seconds: float  # to read what was sent
    loop: Any
    transport: Any
    cut: Any = None  # a timer
    left = 0  # bytes that the client had not received when it was last looked at

    def is_ending(self) -> bool:
        """Whether nothing more will be sent."""
        raise NotImplementedError

    def cut_after(self, seconds: float) -> None:
        """Aborts the connection once its client has read almost nothing (SLOWEST) for this long."""
        if self.cut is None:
            self.left = not_received(self.transport)
            self.cut = self.loop.call_later(seconds, self._look, seconds)

    def _look(self, seconds: float) -> None:
        self.cut = None
        now = not_received(self.transport)
        if now == 0 or self.left - now >= SLOWEST * seconds:
            self.cut_after(seconds)
        else:
            self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.cut_after(self.seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.is_ending():
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self.cut is not None:
            self.cut.cancel()
            self.cut = None


def not_received(transport: Any) -> int:
    """Bytes that the client has not received, including those in the kernel, which takes from this process only
    when a large part of its own buffer is free."""
    kernel = bytes(4)
    with suppress(OSError):  # not known on this system
        file = transport.get_extra_info("socket").fileno()
        kernel = fcntl.ioctl(file, termios.TIOCOUTQ, kernel)
    return int(transport.get_write_buffer_size()) + int(struct.unpack("i", kernel)[0])
