"""A connection between the event loop and uvicorn: to the loop it is a protocol, to uvicorn a transport.

uvicorn parses requests and frames and calls the application. Before that, what arrives is cut into parts (a
head, a piece of a body, a frame), and uvicorn gets a few of them at a time: the loop is never busy with one
client for long. A request is handed on once the one before it has been answered. Here are also the limits on
time: for a head to arrive, for what was sent to be read, and for a WebSocket to be silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from .garbage import Garbage
from .http import CROWDED, UNREAD, Receive, Scope, Send
from .http_framing import Requests
from .limits import Limits
from .problems import Problem
from .unread import Unread
from .websocket_framing import NO_ANSWER, PING, Frames, Refused, control_frame

PARTS = 20  # most parts handed on at a time
PAUSE = 0.002  # seconds before the next ones: at most 10,000 parts per second
LINGER = 2.0  # seconds to read the answer, for a client that is still sending
LOOK = 9.0  # seconds between looks at a WebSocket
SILENT = 5  # looks without a byte from the client until it is pinged, and again until it is closed
CONTINUE = b"HTTP/1.1 100 "
EMPTY_LINE = b"\r\n"
CONNECTION = "tsm.connection"  # in the state of a scope


class Connection(Unread, asyncio.Transport):
    def __init__(
        self,
        make_inner: Callable[..., asyncio.Protocol],  # uvicorn's protocol
        limits: Limits,
        garbage: Garbage,
        opened: set[Connection],  # all connections
        *,
        app_state: dict[str, Any],
        **more: Any,  # what uvicorn passes to its protocol
    ) -> None:
        super().__init__()
        self.inner = make_inner(app_state={**app_state, CONNECTION: self}, **more)
        self.limits, self.garbage, self.opened = limits, garbage, opened
        self.framing: Requests | Frames = Requests(limits)
        self.backlog, self.at = b"", 0  # what has arrived; it has been handed on up to `at`
        self.turn: asyncio.Handle | None = None  # the next parts are handed on then
        self.deadline: asyncio.TimerHandle | None = None  # of a head; then a WebSocket's next look
        self.answering = False  # a request has been handed on and is not answered
        self.started = False  # its answer has begun
        self.full = False  # uvicorn does not take more
        self.blocked = False  # the client does not read
        self.stopped = False  # the socket is not read
        self.eof = False  # the client has closed its own direction
        self.silent = 0  # looks without a byte from the client

    # To the event loop, a protocol

    def connection_made(self, transport: Any) -> None:
        self.transport, self.loop = transport, asyncio.get_running_loop()
        self.opened.add(self)
        self.inner.connection_made(self)
        self._set_deadline(self.limits.seconds, self.close)

    def data_received(self, data: bytes) -> None:
        self.silent = 0
        if not self.ended:
            self.backlog, self.at = self.backlog[self.at :] + data, 0
            if self.turn is None:
                self._hand_on()

    def eof_received(self) -> bool:
        """Many clients close their own direction after the last request, which is still answered."""
        self.eof = True
        if isinstance(self.framing, Frames):
            self.close()
        elif self.turn is None:
            self._hand_on()
        return not self.ended

    def pause_writing(self) -> None:
        self.blocked = True
        self.inner.pause_writing()
        if not self.ended:
            self.cut_after(self.limits.seconds)

    def resume_writing(self) -> None:
        self.blocked = False
        self.inner.resume_writing()
        if not self.ended:
            self.cancel_cut()
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self.cancel_cut()
        self._clear_deadline()
        self._leave(error)
        self.opened.discard(self)
        self.garbage.connection_closed(len(self.opened))

    # To uvicorn, a transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self.ended or self.transport.is_closing()

    def write(self, data: bytes) -> None:  # type: ignore[override]
        if self.ended:
            return
        if not self.started and not data.startswith(CONTINUE):
            self.started = True
            if isinstance(self.framing, Frames):
                self.resume_reading()
                self._look_for_silence()
        self.transport.write(data)

    def pause_reading(self) -> None:
        self.full = True

    def resume_reading(self) -> None:
        self.full = False
        self._wake()

    def set_protocol(self, protocol: Any) -> None:
        """The request begins a WebSocket; its frames are handed on once it has been answered."""
        self.inner, self.framing, self.full = protocol, Frames(), True
        self.answering = False
        if not self.ended:
            self._set_deadline(self.limits.seconds, self.close)

    def close(self) -> None:
        """Closing while the client is still sending would reset the connection, and the answer might be lost:
        the client may go on sending for a moment, which is ignored."""
        if self.ended:
            return
        self.ended = True
        self._clear_deadline()
        if self.eof or self.transport.is_closing() or (self.framing.complete and not self.backlog):
            self.transport.close()
            self.cut_after(self.limits.seconds)
        else:
            self.transport.write_eof()
            if self.stopped:
                self.transport.resume_reading()
            self.cut_after(min(LINGER, self.limits.seconds))
        self.backlog = b""

    # Between the two

    def _hand_on(self) -> None:
        """Hands on the next parts, as many as may be now."""
        self.turn, parts = None, 0
        try:
            while self.backlog and not self._waits() and (part := self._next_part()):
                self.inner.data_received(part)
                parts += 1
                if parts == PARTS:
                    self.turn = self.turn or self.loop.call_later(PAUSE, self._hand_on)
                    break
        except (Problem, Refused) as refused:
            self._refuse(refused)
        if self.eof and not self.ended and self.turn is None and not self._waits():
            if self.answering:
                self._refuse(Problem(400, "the end of the body is missing"))
            else:
                self.close()
        stop = bool(self.backlog) and (self.turn is not None or self._waits())
        if stop != self.stopped and not self.eof and not self.is_closing():
            self.stopped = stop
            (self.transport.pause_reading if stop else self.transport.resume_reading)()

    def _next_part(self) -> bytes:
        """Nothing if more bytes must arrive."""
        framing = self.framing
        if isinstance(framing, Requests) and framing.complete:
            if self.backlog[self.at :] == EMPTY_LINE[:1]:
                return b""
            if self.backlog.startswith(EMPTY_LINE, self.at):  # some clients send one after a body
                self.backlog, self.at = self.backlog[self.at + len(EMPTY_LINE) :], 0
                if not self.backlog:
                    return b""
            framing.begin()
            if self.deadline is None:
                self._set_deadline(self.limits.seconds, self.close)
        part, end = framing.next(self.backlog, self.at)
        if end == self.at:
            return b""
        self.at = end
        if end == len(self.backlog):
            self.backlog, self.at = b"", 0
        if isinstance(framing, Requests) and self.deadline is not None:
            self._clear_deadline()
            self.answering, self.started = True, False
        return part

    def _waits(self) -> bool:
        waits = self.full or self.blocked or self.ended
        return waits or (self.answering and self.framing.complete)

    def _wake(self) -> None:
        if self.turn is None and not self.ended and (self.backlog or self.eof):
            self.turn = self.loop.call_soon(self._hand_on)

    def _refuse(self, refused: Problem | Refused) -> None:
        """Closes the connection; a request that is not being answered yet gets this answer."""
        if isinstance(refused, Refused):
            self.transport.write(refused.frame)
        elif not (self.answering and self.started):
            self.transport.write(answer_of(refused))
        self.close()
        self._leave(None)

    def _leave(self, error: Exception | None) -> None:
        """Tells uvicorn that the connection is lost, once."""
        inner, self.inner = self.inner, asyncio.Protocol()
        inner.connection_lost(error)

    def _set_deadline(self, seconds: float, then: Callable[[], None]) -> None:
        self._clear_deadline()
        self.deadline = self.loop.call_later(seconds, then)

    def _clear_deadline(self) -> None:
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _look_for_silence(self) -> None:
        """Counts looks, not seconds: a stall of this process must not close its connections."""
        self.silent += not self.stopped
        if self.silent > 2 * SILENT:
            self._refuse(Refused(NO_ANSWER, "no answer to a ping"))
            return
        if self.silent == SILENT + 1:
            self.transport.write(control_frame(PING))
        self._set_deadline(LOOK, self._look_for_silence)

    # To the application

    def is_crowded(self) -> bool:
        return len(self.opened) > self.limits.connections

    def is_unread(self) -> bool:
        return not self.framing.complete

    def answered(self) -> None:
        self.answering = False
        self._wake()


def answer_of(problem: Problem) -> bytes:
    body = problem.body()
    phrase = HTTPStatus(problem.status).phrase
    head = f"HTTP/1.1 {problem.status} {phrase}\r\ncontent-type: application/problem+json\r\n"
    return f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


def connected(
    app: Callable[[Scope, Receive, Send], Awaitable[None]],
) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """The application, which tells the connection of a request when it has been answered."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        connection: Connection = scope["state"][CONNECTION]
        scope[CROWDED], scope[UNREAD] = connection.is_crowded(), connection.is_unread
        try:
            await app(scope, receive, send)
        finally:
            connection.answered()

    return run
