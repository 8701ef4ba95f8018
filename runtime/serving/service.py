"""What all routes share."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .logs import Log
from .metrics import Metrics
from .session.sessions import Sessions
from .session.writes import stored
from .streams.models import Models
from .streams.steps import Step
from .streams.text import Telling
from .tracing import Tracing
from .transport.access import Access
from .transport.http import Answer, Request
from .transport.limits import Limits
from .transport.off_loop import CALLER, Line
from .transport.problems import Problem


class Leaving(Protocol):
    """A connection that can be told that the server is shutting down."""

    async def leave(self) -> None: ...


@dataclass
class Service:
    models: Models
    sessions: Sessions
    access: Access
    limits: Limits
    metrics: Metrics
    log: Log
    draining: bool = False
    running: int = 0  # requests that a drain waits for
    websockets: set[Leaving] = field(default_factory=set)
    tracing: Tracing = field(default_factory=Tracing.of_process)
    peers: Sequence[str] = ()  # origins of other servers with the same store

    def __post_init__(self) -> None:
        self.line = Line(self.limits)

    def user(self, authorization: str) -> str:
        """The name behind a token; large work of this task is done in that user's turn from now on."""
        user = self.access.user(authorization)
        CALLER.set((self.line, user))
        return user

    def work(self) -> Service:
        """`with service.work():` counts a request that computes something, or refuses it while the server
        drains."""
        if self.draining:
            raise Problem(503, "the server is going down; another one will answer", retry_after=1)
        return self

    def __enter__(self) -> None:
        self.running += 1

    def __exit__(self, kind: object, *_: object) -> None:
        self.running -= 1
        if self.draining and kind is CancelledError:  # the time for running requests has passed
            raise went_down()

    async def unready(self) -> Problem | None:
        """Why the server does not accept work, if it does not."""
        if self.draining:
            return Problem(503, "the server is shutting down", retry_after=1)
        try:
            await stored(self.sessions.commits.check())
        except Problem as problem:
            return problem
        return None

    async def step(self, user: str, name: str, step: Step, telling: Telling | None = None) -> bytes:
        with self.work(), self.tracing.step(step):
            return await self.sessions.step(user, name, step, telling)


def went_down() -> Problem:
    """The answer to a request that a shutdown cuts off."""
    detail = "the server went down meanwhile; send it again, to a session with the same request_id"
    return Problem(503, detail, retry_after=1)


# Called with (service, request, *groups of the path); returns None if it has sent the answer itself.
Handler = Callable[..., Awaitable[Answer | None]]
Route = tuple[str, str, str, Handler]
__all__ = ["Answer", "Handler", "Request", "Route", "Service"]
