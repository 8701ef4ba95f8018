"""uvicorn, with bounds that it does not have: the size of a request's head, and the time for it to arrive."""

from __future__ import annotations

from typing import Any

from .http import ABORT
from .limits import Limits

TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def make_server(app: Any, limits: Limits, grace: float) -> Any:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Protocol(HttpToolsProtocol):
        """Counts what comes before a request's head is complete, and when it began to come."""

        head = 0
        timer: Any = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.expect_head()

        def expect_head(self) -> None:
            self.timer = self.loop.call_later(limits.seconds, self.late)

        def late(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

        def data_received(self, data: bytes) -> None:
            if self.timer is None and self.cycle is not None and self.cycle.response_complete:
                self.expect_head()  # the next request of a connection that was kept
            if self.timer is not None:
                self.head += len(data)
            super().data_received(data)
            if self.timer is not None and self.head > limits.header:
                self.refuse()

        def on_headers_complete(self) -> None:
            self.arrived()
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > limits.header:
                self.refuse()
                raise ValueError("the head is too large")  # ends the parser; see below
            scope: Any = self.scope
            scope[ABORT] = self.transport.abort
            super().on_headers_complete()

        def refuse(self) -> None:
            self.transport.write(TOO_LARGE)
            self.transport.close()

        def send_400_response(self, msg: str) -> None:
            if not self.transport.is_closing():
                super().send_400_response(msg)

        def connection_lost(self, exc: Exception | None) -> None:
            self.arrived()
            super().connection_lost(exc)

        def arrived(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
            self.timer, self.head = None, 0

    class Server(uvicorn.Server):
        def capture_signals(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()  # the process has handlers of its own

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="websockets-sansio",
        ws_max_size=limits.body,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        limit_concurrency=limits.connections,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        server_header=False,
        proxy_headers=False,
    )
    return Server(config)
