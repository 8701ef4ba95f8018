"""WebSockets that are pinged only while they are silent, and closed only if the client, not this process, is
late."""

from __future__ import annotations

from typing import Any

from . import frames

PING = 45.0  # seconds of silence; many proxies close a connection after 60
PONG = 45.0  # seconds to answer a ping
AGAIN = 1.0  # extra seconds to read what arrived while this process was stalled


def make_protocol() -> type[Any]:
    """A subclass of uvicorn's protocol, which is imported only when it is needed."""
    Frames: Any = frames.make_protocol()

    class WebSocket(Frames):  # type: ignore[misc]
        heard = 0.0  # when the client last sent something
        given: Any = None  # the ping whose timeout was extended

        def data_received(self, data: bytes) -> None:
            self.heard = self.loop.time()
            super().data_received(data)

        def send_keepalive_ping(self) -> None:
            assert self.ping_interval is not None
            silent = self.loop.time() - self.heard
            if silent < self.ping_interval:
                wait = self.ping_interval - silent
                self.ping_timer = self.loop.call_later(wait, self.send_keepalive_ping)
            else:
                super().send_keepalive_ping()

        def keepalive_timeout(self) -> None:
            """After a stall, timers run before sockets are read, so the pong may have arrived but not been read
            yet."""
            if self.read_paused or self.heard > self.ping_sent_at:
                self.pong_timer = self.pending_ping_payload = None
                self.schedule_ping()
            elif self.given is not self.pending_ping_payload:
                self.given = self.pending_ping_payload
                self.pong_timer = self.loop.call_later(AGAIN, self.keepalive_timeout)
            else:
                super().keepalive_timeout()

    return WebSocket
