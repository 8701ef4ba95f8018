"""The ASGI application: checks access, finds the route, turns errors into problem+json."""

from __future__ import annotations

import re
import time
import traceback
from asyncio import CancelledError
from collections.abc import Awaitable, Callable

from .routes import health, kserve, openai, page, sessions
from .routes.websocket import Socket
from .service import Handler, Service, went_down
from .transport.fields import TOO_DEEP
from .transport.http import CROWDED, Answer, Gone, Receive, Request, Scope, Send
from .transport.limits import Limits
from .transport.problems import Problem

ROUTES = [
    (method, re.compile(path), name, handler)
    for routes in (sessions.ROUTES, openai.ROUTES, kserve.ROUTES, health.ROUTES, page.ROUTES)
    for method, path, name, handler in routes
]
STREAM = re.compile(r"/v1/sessions/([^/]+)/stream")
Startup = Callable[[], Awaitable[Service]]


class App:
    """`startup` creates the service in the event loop that will run it; `shutdown` closes it."""

    def __init__(self, startup: Startup, shutdown: Callable[[Service], Awaitable[None]]) -> None:
        self.startup, self.shutdown = startup, shutdown
        self.service: Service
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self.http(Request(scope, receive, send, self.service.limits))
        elif scope["type"] == "websocket":
            await self.websocket(scope, receive, send)
        else:
            await self.lifespan(receive, send)

    async def lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            self.service = await self.startup()
        except Exception as error:  # re-raised in Process.run
            self.failure = error
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.shutdown(self.service)
        await send({"type": "lifespan.shutdown.complete"})

    async def websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = STREAM.fullmatch(scope["path"])
        socket = Socket(self.service, scope, receive, send)
        if match is None:
            await receive()
            await socket.refuse(Problem(404, f"no WebSocket at {scope['path']!r:.80}"))
        else:
            await socket.run(match[1])

    async def http(self, request: Request) -> None:
        service, begin, route = self.service, time.perf_counter(), "none"
        try:
            access, host = service.access, request.header("host")
            access.check_host(host)
            if access.check_origin(origin := request.header("origin"), host):
                request.more_headers = [
                    (b"access-control-allow-origin", origin.encode("latin-1")),
                    (b"vary", b"origin"),
                ]
            if request.method == "OPTIONS":
                answer: Answer | None = preflight()
            else:
                route, handler, groups = find(request)
                if request.scope.get(CROWDED) and route not in health.OPEN:
                    raise crowded(service.limits)
                if route not in health.OPEN | page.OPEN:
                    request.user = service.user(request.header("authorization"))
                    access.count(request.user)
                with service.tracing.request(request, route):
                    answer = await handler(service, request, *groups)
        except Problem as problem:
            answer = refusal(problem, request.path)
        except RecursionError:  # parsed, but too deeply nested for an error message
            answer = refusal(Problem(400, TOO_DEEP), request.path)
        except Gone:
            return
        except CancelledError:  # before it had arrived
            if not service.draining:
                raise
            answer = refusal(went_down(), request.path)
        except Exception as error:  # a bug: logged, not shown to the client
            service.log("error", path=request.path[:200], trace=traceback.format_exc(limit=20))
            detail = f"internal server error: {type(error).__name__}"
            answer = refusal(Problem(500, detail), request.path)
        if answer is not None and not request.streaming:
            await request.answer(answer)
        self.note(request, route, time.perf_counter() - begin)

    def note(self, request: Request, route: str, seconds: float) -> None:
        metrics, log = self.service.metrics, self.service.log
        metrics.answered(route, request.status, seconds)
        if log.requests:
            facts = {"method": request.method, "path": request.path[:200], "user": request.user}
            log("request", **facts, status=request.status, ms=round(seconds * 1e3, 3))


def find(request: Request) -> tuple[str, Handler, tuple[str, ...]]:
    methods = []
    for method, pattern, name, handler in ROUTES:
        if match := pattern.fullmatch(request.path):
            if method == request.method or (method == "GET" and request.method == "HEAD"):
                return name, handler, match.groups()
            methods.append(method)
    if methods:
        accepted = ", ".join(sorted({*methods}))
        raise Problem(405, f"{request.method} on {request.path!r:.80}; accepted: {accepted}")
    raise Problem(404, f"nothing at {request.path!r:.80}")


def refusal(problem: Problem, path: str) -> Answer:
    if openai.PATHS.match(path):
        problem.more["error"] = openai.error_of(problem)
    headers = list(problem.headers)
    if problem.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if problem.status in (408, 413) or problem.closes:
        headers.append((b"connection", b"close"))
    return Answer(problem.body(), problem.status, b"application/problem+json", headers)


def crowded(limits: Limits) -> Problem:
    flag = limits.flag("connections")
    detail = f"there are more than {limits.connections} connections ({flag})"
    return Problem(503, detail, retry_after=1, closes=True)


def preflight() -> Answer:
    headers = [
        (b"access-control-allow-methods", b"GET, POST, PUT, DELETE"),
        (b"access-control-allow-headers", b"authorization, content-type, if-match, if-none-match"),
        (b"access-control-max-age", b"600"),
    ]
    return Answer(status=204, headers=headers)
