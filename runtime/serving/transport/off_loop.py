"""Work that grows with a request, beside the event loop: other requests are answered meanwhile.

It runs on one thread, so that the loop competes for the GIL with one at most. Python changes threads every
half a millisecond (SWITCH in server.py), but not within a call into compiled code: large values are therefore
written in many short calls. The users of a server take turns: one that sends much waits for itself.
"""

from __future__ import annotations

import asyncio
import json
from bisect import insort
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, TypeVar

from .deadline import within
from .limits import Limits
from .problems import Problem

T = TypeVar("T")
LARGE = 8_192  # characters or numbers; less takes about 2 ms, and is done at once
THREAD = ThreadPoolExecutor(1, "tsm-large")
ENCODER, SORTED = json.JSONEncoder(), json.JSONEncoder(sort_keys=True)


async def off_loop(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """function(*arguments), on the thread if it handles `size` characters or numbers, more than LARGE."""
    if size <= LARGE:
        return function(*arguments)
    call = partial(function, *arguments)
    if (caller := CALLER.get()) is None:
        return await asyncio.get_running_loop().run_in_executor(THREAD, call)
    line, user = caller
    return await line.run(user, size, call)


class Line:
    """The work that waits for the thread. Users take turns, one piece each. Of a user's pieces the smallest is
    first; a large one that never has its turn is refused after --max-seconds."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting: dict[str, list[tuple[int, int, Piece]]] = {}  # user, in turns -> in order
        self.numbers = count()
        self.running = False

    async def run(self, user: str, size: int, call: Callable[[], T]) -> T:
        """call(), on the thread, within --max-seconds."""
        limits, piece = self.limits, Piece(call)
        insort(self.waiting.setdefault(user, []), (size, next(self.numbers), piece))
        if sum(map(len, self.waiting.values())) > limits.queue:
            self._refuse()
        if not self.running:
            self._next()
        try:
            done: T = await within(limits.seconds, piece.done())
            return done
        except asyncio.TimeoutError as error:
            flag = limits.flag("seconds")
            detail = f"large requests and answers took over {limits.seconds:g} s ({flag})"
            raise Problem(504, detail) from error

    def _refuse(self) -> None:
        """The last piece of the user with the most."""
        user = max(self.waiting, key=lambda user: len(self.waiting[user]))
        most, flag = self.limits.queue, self.limits.flag("queue")
        detail = f"over {most} large requests and answers wait; accepted: {most} ({flag})"
        *_, piece = self._take(user, -1)
        if not piece.work.done():
            piece.work.set_exception(Problem(429, detail, retry_after=1))

    def _take(self, user: str, index: int) -> tuple[int, int, Piece]:
        taken = self.waiting[user].pop(index)
        if not self.waiting[user]:
            del self.waiting[user]
        return taken

    def _next(self, last: str = "") -> None:
        """Starts a piece. last: the user whose piece has ended."""
        self.running = False
        if last in self.waiting:
            self.waiting[last] = self.waiting.pop(last)
        while self.waiting and not self.running:
            user = next(iter(self.waiting))
            *_, piece = self._take(user, 0)
            if not piece.work.done():  # otherwise its request has ended
                self.running = True
                piece.start(partial(self._next, user))


class Piece:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call = call
        self.work: asyncio.Future[asyncio.Future[Any]] = asyncio.get_running_loop().create_future()

    def start(self, ended: Callable[[], None]) -> None:
        def end(work: asyncio.Future[Any]) -> None:
            work.exception()  # the request may have ended before
            ended()

        work = asyncio.get_running_loop().run_in_executor(THREAD, self.call)
        work.add_done_callback(end)
        self.work.set_result(work)

    async def done(self) -> Any:
        """What the call returns; a call that runs goes on when its request ends."""
        return await asyncio.shield(await self.work)


# Whose turn the work of a task waits for; set by Service.user.
CALLER: ContextVar[tuple[Line, str] | None] = ContextVar("CALLER", default=None)


def parts_of(value: Any, encoder: json.JSONEncoder = ENCODER) -> Iterator[str]:
    """The text of json.dumps(value) in short parts, by Python's own encoder: the compiled one would hold the
    GIL until it has written everything."""
    return iter(encoder.iterencode(value))


def written(value: Any) -> bytes:
    return "".join(parts_of(value)).encode()
