"""A StreamPool for asyncio: `await` a request, or get its tokens in an `async for` loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from ._core import PoolEvent, StreamPool, TsmError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


BRIEF = 0.0002  # seconds that the loop waits for a step; a thread switch would take longer


class Request:
    """A request that the pool has accepted, and its events so far."""

    def __init__(self, pool: StreamPool, ticket: int, loop: asyncio.AbstractEventLoop) -> None:
        self.pool, self.ticket, self.loop = pool, ticket, loop
        self.heard: asyncio.Future[None] = loop.create_future()
        self.parts: list[NDArray[np.int64]] = []
        self.last: PoolEvent | None = None

    def tell(self, event: PoolEvent, done: bool) -> None:
        if done:
            self.last = event
        elif event.tokens is not None:
            self.parts.append(event.tokens)
        if not self.heard.done():
            self.heard.set_result(None)

    async def news(self) -> None:
        await self.heard
        if self.last is None:
            self.heard = self.loop.create_future()

    def leave(self) -> None:
        """Cancels the request if it has not ended, since nobody is waiting for it any more."""
        if self.last is None:
            self.pool.cancel(self.ticket)

    async def end(self) -> PoolEvent:
        try:
            while self.last is None:
                await self.news()
        finally:
            self.leave()
        if self.last.error is not None:
            raise self.last.error
        return self.last


class AsyncPool:
    """A StreamPool whose requests are awaited in the running event loop.

    Arguments are those of StreamPool.feed and .generate; errors are raised as TsmError. While the queue is
    full, requests wait in order; with wait=False they raise an error (kind "full"). Cancelling a task that
    awaits a request ends the request. To put, save or drop a stream, use `pool`. Requests made in the same
    iteration of the event loop start together, at its end.
    """

    def __init__(self, pool: StreamPool) -> None:
        self.pool = pool
        self._loop = asyncio.get_running_loop()
        self._requests: dict[int, Request] = {}
        self._line = asyncio.Lock()  # held by the task that waits for room
        self._room = asyncio.Event()
        self._waking = False
        self._loop.add_reader(pool.fileno(), self._deliver)

    async def feed(
        self, key: bytes, x: ArrayLike, *, wait: bool = True, **options: Any
    ) -> PoolEvent:
        """The last event of StreamPool.feed(key, x, **options)."""
        if wait:
            request = await self._submit(
                lambda: self.pool.feed(key, x, wake=False, **options), wait
            )
        else:
            request = self._accepted(self.pool.feed(key, x, wake=False, **options))
        return await request.end()

    def generate(self, key: bytes, n: int, *, wait: bool = True, **options: Any) -> Generation:
        """Returns an object to `await` for the last event of StreamPool.generate, or to iterate over with
        `async for` for the tokens as they come."""

        async def begin(**more: Any) -> Request:
            settings = options | more | {"wake": False}
            return await self._submit(lambda: self.pool.generate(key, n, **settings), wait)

        return Generation(begin)

    async def close(self, drain: bool = True) -> None:
        """Like StreamPool.close, without blocking the loop; tasks that await a request get its last event."""
        await asyncio.to_thread(self.pool.close, drain)
        while self.pool.stats()["events"]:
            self._deliver()
        self._loop.remove_reader(self.pool.fileno())

    async def __aenter__(self) -> AsyncPool:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close(drain=False)

    def _deliver(self) -> None:
        for event in self.pool.take():
            ticket, done = event.ticket, event.kind == "done"
            if done:
                request = self._requests.pop(ticket, None)
                self._room.set()
            else:
                request = self._requests.get(ticket)
            if request is not None:
                request.tell(event, done)

    async def _submit(self, ask: Callable[[], int], wait: bool) -> Request:
        if not wait:
            return self._accepted(ask())
        async with self._line:
            while True:
                self._room.clear()
                try:
                    return self._accepted(ask())
                except TsmError as error:
                    # If no request is pending, none will end and make room.
                    if error.kind != "full" or not self._requests:
                        raise
                await self._room.wait()

    def _accepted(self, ticket: int) -> Request:
        request = self._requests[ticket] = Request(self.pool, ticket, self._loop)
        if not self._waking:
            self._waking = True
            self._loop.call_soon(self._wake)
        return request

    def _wake(self) -> None:
        self._waking = False
        if self.pool.wake(BRIEF):
            self._deliver()


class Generation:
    """What AsyncPool.generate returns. `event` is the last event of the generation, once it has ended."""

    def __init__(self, begin: Callable[..., Any]) -> None:
        self._begin = begin
        self.event: PoolEvent | None = None

    def __await__(self) -> Generator[Any, None, PoolEvent]:
        return self._whole().__await__()

    async def _whole(self) -> PoolEvent:
        request: Request = await self._begin()
        self.event = await request.end()
        return self.event

    async def __aiter__(self) -> AsyncIterator[NDArray[np.int64]]:
        request: Request = await self._begin(progress=True)
        seen = 0
        try:
            while request.last is None:
                await request.news()
                if request.parts:
                    part, request.parts = np.concatenate(request.parts), []
                    seen += len(part)
                    yield part
        finally:
            request.leave()
        self.event = request.last
        tokens = self.event.tokens
        if tokens is not None and len(tokens) > seen:
            yield tokens[seen:]
        if self.event.error is not None:
            raise self.event.error


AsyncPool.__module__ = "tsm.runtime"
