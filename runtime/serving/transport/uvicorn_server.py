"""uvicorn, with additional limits.

They bound the size of a request's head, the time for it to arrive, the time for what was sent to be read, and
the number of connections. If a client is answered before it has sent everything, its connection is closed
gracefully.
"""

from __future__ import annotations

from typing import Any

from .garbage import Garbage
from .http import CROWDED, UNREAD, Receive, Scope, Send
from .keepalive import PING, PONG, make_protocol
from .limits import Limits
from .unread import Unread

LINGER = 2.0  # seconds to read the answer, for a client that has not sent its whole request
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def refusal(status: int) -> Any:
    """An application that answers a request whose body is wrong."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body"})

    return refuse


def make_server(app: Any, limits: Limits, garbage: Garbage) -> Any:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Connection:
        """The transport that uvicorn's request cycle gets; closing it calls `Protocol.end`."""

        def __init__(self, protocol: Protocol) -> None:
            self.write, self.is_closing = protocol.transport.write, protocol.transport.is_closing
            self.close = protocol.end

    class Protocol(Unread, HttpToolsProtocol):
        """Counts the bytes of a request's head and of what follows its body, and times its arrival."""

        head = 0  # bytes since the last head or part of a body
        timer: Any = None  # runs out when the head must have arrived
        seconds = limits.seconds
        running: Any = None  # the request that is being answered; later ones may have arrived
        ended = False  # nothing more is sent, and further data is ignored
        last = False  # further data is ignored, but earlier requests are still answered

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.expect_head()

        def expect_head(self) -> None:
            self.timer = self.loop.call_later(limits.seconds, self.late)

        def late(self) -> None:
            if not self.is_ending():
                self.end()

        def end(self) -> None:
            """Closes the connection, or aborts it if the client does not read its answer in time.

            Closing while the client is still sending would reset the connection, and the answer might be lost.
            So after an early answer, the client may go on sending for a moment.
            """
            if self.cycle is not None and self.cycle.more_body:
                self.linger()
            else:
                self.transport.close()
                self.cut_after(limits.seconds)

        def linger(self) -> None:
            self.ended = True
            self.transport.write_eof()
            self.cut_after(min(LINGER, limits.seconds))

        def is_ending(self) -> bool:
            return self.ended or bool(self.transport.is_closing())

        def timeout_keep_alive_handler(self) -> None:
            self.late()

        def data_received(self, data: bytes) -> None:
            if self.ended or self.last:
                return
            if self.timer is None and self.cycle is not None and self.cycle.response_complete:
                self.expect_head()  # the next request on a kept-alive connection
            self.head += len(data)
            super().data_received(data)
            if self.head > limits.header:
                self.refuse()

        def eof_received(self) -> Any:  # a bool; uvicorn's returns None
            """Many clients close their own direction after the last request: what has arrived is answered. The
            rest of a request that has not arrived completely will never come."""
            cycle = self.cycle
            waits = cycle is not None and not cycle.response_complete
            if self.is_ending() or not waits or (cycle.more_body and not self.pipeline):
                self.cut_after(limits.seconds)
                return False
            self.is_next()
            return True

        def on_headers_complete(self) -> None:
            self.arrived()
            self.head = 0
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > limits.header:
                self.refuse()
                raise ValueError("the head is too large")  # ends the parser; see below
            scope: Any = self.scope
            scope[CROWDED] = len(self.connections) > limits.connections
            before = self.cycle
            super().on_headers_complete()
            cycle: Any = self.cycle
            if cycle is not before:  # not a WebSocket
                cycle.transport = Connection(self)
                scope[UNREAD] = lambda: cycle.more_body

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self.running = cycle
            super()._start_asgi_task(cycle, app)

        def on_body(self, body: bytes) -> None:
            self.head = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.head = 0
            super().on_message_complete()

        def handle_websocket_upgrade(self) -> None:
            if not self.is_next():
                return
            super().handle_websocket_upgrade()
            protocol: Any = self.transport.get_protocol()
            if self.cut is not None:  # an earlier answer has not been read yet
                self._cancel()
                protocol.cut_after(self.seconds)
            if not protocol.handshake_initiated:  # not a GET, or with a body
                super().send_400_response("Invalid WebSocket handshake.")

        def refuse(self) -> None:
            if self.is_next(431):
                self.transport.write(TOO_LARGE)
                self.tell(self.cycle)
                self.linger()

        def send_400_response(self, msg: str) -> None:
            if self.is_next(400):
                super().send_400_response(msg)

        def is_next(self, status: int = 400) -> bool:
            """Whether what has just arrived can be answered now. If an earlier request has no answer yet, it
            gets its own, and then the connection is closed; before that, a request that waits for its turn and
            whose own body is wrong is answered with `status`."""
            if self.is_ending() or self.last:
                return False
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                return True
            if cycle.more_body and not cycle.response_started and not self.pipeline:
                return True  # its own body is wrong
            self.last, cycle.keep_alive = True, False
            if cycle.more_body and self.pipeline:
                self.pipeline[0] = (cycle, refusal(status))
            return False

        def connection_lost(self, exc: Exception | None) -> None:
            self.arrived()
            self.tell(self.running)  # uvicorn only looks at the newest request
            super().connection_lost(exc)
            garbage.connection_closed(len(self.connections))

        def tell(self, cycle: Any) -> None:
            """Tells a request that it cannot be answered any more."""
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

        def arrived(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = None

    class WebSocket(Unread, make_protocol()):  # type: ignore[misc]
        seconds = limits.seconds

        def is_ending(self) -> bool:
            return bool(self.close_sent or self.transport.is_closing())

        def keepalive_timeout(self) -> None:
            super().keepalive_timeout()
            if self.is_ending():
                self.cut_after(limits.seconds)

        async def run_asgi(self) -> None:
            await super().run_asgi()
            if not self.disconnected:
                self.cut_after(limits.seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            garbage.connection_closed(len(self.connections))

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            garbage.begin()

        def capture_signals(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()  # the process has its own signal handlers

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws=WebSocket,
        ws_ping_interval=PING,
        ws_ping_timeout=PONG,
        ws_max_size=limits.body,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
        server_header=False,
        proxy_headers=False,
    )
    return Server(config)
