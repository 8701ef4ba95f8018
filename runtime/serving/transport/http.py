"""HTTP over ASGI: requests with bounded bodies, answers, and streams of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from .deadline import within
from .fields import parse
from .limits import Limits
from .off_loop import off_loop
from .problems import Problem

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]
Headers = list[tuple[bytes, bytes]]
T = TypeVar("T")
MOST_QUERY = 20
# What tsm-serve puts into the scope:
UNREAD = "tsm.unread"  # whether part of the body has not arrived yet
CROWDED = "tsm.crowded"  # the connection exceeds the limit on connections


@dataclass
class Answer:
    """What a route returns: JSON as an object or as bytes, or bytes of another type."""

    body: bytes | dict[str, Any] = b""
    status: int = 200
    kind: bytes = b"application/json"
    headers: Headers = field(default_factory=list)

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Request:
    """One HTTP request of an authenticated user."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        self.scope, self.receive, self.send, self.limits = scope, receive, send, limits
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.user = ""
        self.status = 0
        self.more_headers: Headers = []  # added to every answer
        self.streaming = False

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), b"").decode("latin-1")

    def query(self, name: str) -> str | None:
        text = self.scope["query_string"].decode("latin-1")
        try:
            return dict(parse_qsl(text, max_num_fields=MOST_QUERY)).get(name)
        except ValueError as error:
            raise Problem(400, f"over {MOST_QUERY} fields after the ?") from error

    async def body(self) -> bytes:
        """The whole body, within the limits on time and size."""
        flag = self.limits.flag("body")
        length = self.header("content-length")
        if length and int(length) > self.limits.body:  # the server has checked that it is a number
            raise Problem(
                413, f"Content-Length {length:.20}; accepted: 0 to {self.limits.body} ({flag})"
            )
        try:
            return await within(self.limits.seconds, self._body())
        except asyncio.TimeoutError as error:
            raise Problem(
                408,
                f"the body took over {self.limits.seconds:g} s ({self.limits.flag('seconds')})",
            ) from error

    async def _body(self) -> bytes:
        parts, size = [], 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part = message.get("body", b"")
            size += len(part)
            if size > self.limits.body:
                raise Problem(
                    413, f"the body is over {self.limits.body} bytes ({self.limits.flag('body')})"
                )
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def json(self) -> dict[str, Any]:
        return await self.parsed(dict)

    async def parsed(self, of: Callable[[dict[str, Any]], T]) -> T:
        """What `of` makes of the JSON object in the body."""
        body = await self.body()
        return await off_loop(len(body), lambda: of(parse(body)))

    async def answer(self, answer: Answer) -> None:
        raw = answer.raw()
        headers = [(b"content-type", answer.kind), (b"content-length", b"%d" % len(raw))]
        await self._start(answer.status, [*headers, *answer.headers])
        await self.send({"type": "http.response.body", "body": raw})

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        headers = [*headers, *self.more_headers]
        closing = (b"connection", b"close")
        if closing not in headers and UNREAD in self.scope and self.scope[UNREAD]():
            headers.append(closing)  # the rest of the body is ignored
        start = {"type": "http.response.start", "status": status, "headers": headers}
        await self.send(start)

    def events(self) -> Events:
        return Events(self)


class Gone(Exception):
    """The client has left."""


class Events:
    """Server-sent events. The response starts with the first event, so an earlier error can still set the
    status."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.started = False
        self.left: asyncio.Future[None] | None = None

    async def send(self, data: bytes, name: str = "") -> None:
        """Sends one event, once the client has read most of the earlier ones; raises Gone if it has left. The
        connection of a client that does not read is cut."""
        if not self.started:
            self.started = self.request.streaming = True
            self.left = asyncio.ensure_future(self._leaving())
            headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
            await self.request._start(200, headers)
        assert self.left is not None
        if self.left.done():
            raise Gone
        event = (b"event: %s\n" % name.encode() if name else b"") + b"data: " + data + b"\n\n"
        await self.request.send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        """Ends the response."""
        if self.left is not None:
            self.left.cancel()
        if self.started:
            await self.request.send({"type": "http.response.body", "body": b""})

    async def _leaving(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass
