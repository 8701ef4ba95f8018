"""A session over a WebSocket: `/v1/sessions/ID/stream`, JSON messages in, JSON messages out, in order.

    {"op": "score", "id": 1, "text": "the "}   -> {"id": 1, "position": 4, "log_probs": [...]}
    {"op": "generate", "id": 2, "n": 3}        -> {"id": 2, "tokens": [5], "text": "f"} ...
                                                  {"id": 2, "done": true, "position": 7, ...}
    {"op": "feed", "id": 3, "tokens": [99]}    -> {"id": 3, "error": {"status": 400, "detail": ...}}

`op` is feed by default; `id` is chosen by the client and returned in the answer. Messages are handled one at a
time. A browser cannot set headers, so it sends its token as a subprotocol: ["tsm", "bearer.TOKEN"].
"""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from typing import Any

from ..service import Service
from ..session.sessions import ID
from ..streams.steps import parse
from ..streams.text import Telling
from ..transport.fields import TOO_DEEP, wrong
from ..transport.fields import parse as parse_json
from ..transport.http import Gone, Receive, Scope, Send
from ..transport.off_loop import off_loop
from ..transport.problems import Problem

OPERATIONS = ("feed", "score", "generate")
GOING_DOWN = 1012  # "service restart" in the registry of WebSocket close codes
PROTOCOL = "tsm"
MOST_IN_A_ROW = 8  # messages of one connection before others get a turn


class Socket:
    """One connection."""

    def __init__(self, service: Service, scope: Scope, receive: Receive, send: Send) -> None:
        self.service, self.scope, self.receive, self.raw_send = service, scope, receive, send
        self.user, self.name, self.authorization = "", "", ""
        self.busy = self.leaving = False

    async def run(self, name: str) -> None:
        self.name = name
        if (await self.receive())["type"] != "websocket.connect":
            return
        try:
            protocol = self._admit()
        except Problem as problem:
            await self.refuse(problem)
            return
        await self.raw_send({"type": "websocket.accept", "subprotocol": protocol})
        service = self.service
        service.websockets.add(self)
        self.leaving = service.draining  # a drain may have begun meanwhile
        service.metrics.sockets.inc()
        try:
            await self._messages()
        except Gone:
            pass
        finally:
            service.websockets.discard(self)
            service.metrics.sockets.dec()

    def _admit(self) -> str | None:
        headers = {k: v.decode("latin-1") for k, v in self.scope["headers"]}
        access, host = self.service.access, headers.get(b"host", "")
        access.check_host(host)
        access.check_origin(headers.get(b"origin", ""), host)
        offered = self.scope.get("subprotocols", [])
        token = next((p[7:] for p in offered if p.startswith("bearer.")), None)
        self.authorization = headers.get(b"authorization", f"Bearer {token}" if token else "")
        self.user = self.service.user(self.authorization)
        if not ID.fullmatch(self.name):
            raise Problem(
                400, f"session {self.name!r:.80}; accepted: 1 to 64 of A-Z a-z 0-9 - _ . ~"
            )
        if self.service.draining:
            raise Problem(503, "the server is shutting down", retry_after=1)
        most = self.service.limits.connections
        if len(self.service.websockets) >= most:
            flag = self.service.limits.flag("connections")
            raise Problem(503, f"there are {most} WebSockets, the limit of {flag}", retry_after=1)
        return PROTOCOL if PROTOCOL in offered else None

    async def refuse(self, problem: Problem) -> None:
        headers = [(b"content-type", b"application/problem+json"), *problem.headers]
        start = {"type": "websocket.http.response.start", "status": problem.status}
        await self.raw_send({**start, "headers": headers})
        await self.raw_send({"type": "websocket.http.response.body", "body": problem.body()})

    async def _messages(self) -> None:
        handled = 0
        while not self.leaving:
            message = await self.receive()
            if message["type"] == "websocket.disconnect" or self.leaving:
                return  # a message that arrives while the socket is closing is not handled
            begin, self.busy = time.perf_counter(), True
            status = await self._one(message)
            self.busy = False
            self.service.metrics.answered("websocket", status, time.perf_counter() - begin)
            handled += 1
            if handled % MOST_IN_A_ROW == 0:  # refused messages are answered without a wait
                await asyncio.sleep(0)
        await self._close()

    async def leave(self) -> None:
        """Called when the server shuts down; the current message is still answered."""
        self.leaving = True
        if not self.busy:
            await self._close()

    async def _close(self) -> None:
        await self._deliver({"type": "websocket.close", "code": GOING_DOWN})

    async def _one(self, message: dict[str, Any]) -> int:
        """Handle one message; returns its status."""
        answer_id: Any = None
        try:
            self.service.access.user(self.authorization)  # the token may have been revoked (SIGHUP)
            self.service.access.count(self.user)
            text = message.get("text")
            if text is None:
                raise Problem(400, "a binary message; accepted: JSON as text")
            values = await off_loop(len(text), parse_json, text)
            answer_id = values.pop("id", None)
            if type(answer_id) not in (int, str, type(None)):
                raise wrong("id", answer_id, "an integer or a text")
            operation = values.pop("op", "feed")
            if operation not in OPERATIONS:
                raise wrong("op", operation, ", ".join(OPERATIONS))
            step = await off_loop(len(text), parse, operation, values, self.service.limits)
            telling = self._telling(answer_id) if operation == "generate" else None
            answer = await self.service.step(self.user, self.name, step, telling)
            done = b'"done": true, ' if operation == "generate" else b""
            head = (
                b'{"id": ' + json.dumps(answer_id).encode() + b", "
                if answer_id is not None
                else b"{"
            )
            await self._send(head + done + answer[1:])
            return 200
        except Problem as problem:
            refused = problem
        except RecursionError:  # parsed, but too deeply nested for an error message
            refused = Problem(400, TOO_DEEP)
        except Gone:
            raise
        except Exception as error:  # a bug: logged, not shown to the client
            self.service.log("error", path=self.scope["path"][:200], trace=traceback.format_exc())
            refused = Problem(500, f"internal server error: {type(error).__name__}")
        await self._send(json.dumps({"id": answer_id, "error": refused.members}).encode())
        return refused.status

    def _telling(self, answer_id: Any) -> Telling:
        head = {} if answer_id is None else {"id": answer_id}
        return Telling(lambda part: self._send(json.dumps({**head, **part}).encode()))

    async def _send(self, data: bytes) -> None:
        await self._deliver({"type": "websocket.send", "text": data.decode()})

    async def _deliver(self, message: dict[str, Any]) -> None:
        """Raises Gone if the client has left. The connection of one that does not read is cut."""
        try:
            await self.raw_send(message)
        except OSError as error:
            raise Gone from error
