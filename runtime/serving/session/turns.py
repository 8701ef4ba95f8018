"""One request at a time per session, in the order of arrival."""

from __future__ import annotations

import asyncio

from ..transport.deadline import within
from ..transport.limits import Limits
from ..transport.problems import Problem


class Turns:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turns: dict[str, Turn] = {}

    def take(self, key: str) -> Turn:
        """`async with turns.take(key):` waits for this request's turn."""
        turn = self.turns.get(key)
        if turn is None:
            turn = self.turns[key] = Turn(self, key)
        elif turn.wanted > self.limits.waiting:
            raise Problem(
                429,
                f"{turn.wanted} requests wait for this session;"
                f" accepted: {self.limits.waiting} ({self.limits.flag('waiting')})",
                retry_after=1,
            )
        turn.wanted += 1
        return turn


class Turn:
    """The order of a session's requests, kept while one runs or waits. The lock is only created when a second
    one arrives."""

    __slots__ = ("key", "lock", "turns", "wanted")

    def __init__(self, turns: Turns, key: str) -> None:
        self.turns, self.key, self.wanted = turns, key, 0
        self.lock: asyncio.Lock | None = None

    async def __aenter__(self) -> str:
        if self.wanted > 1:
            await self._wait()
        return self.key

    async def _wait(self) -> None:
        limits = self.turns.limits
        try:
            if self.lock is None:
                self.lock = asyncio.Lock()
                await self.lock.acquire()  # on behalf of the request that runs; this does not wait
            await within(limits.seconds, self.lock.acquire())
        except asyncio.TimeoutError as error:
            self._leave()
            raise Problem(
                504,
                f"other requests of this session took {limits.seconds:g} s"
                f" ({limits.flag('seconds')})",
            ) from error
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        if self.lock is not None:
            self.lock.release()
        self._leave()

    def _leave(self) -> None:
        self.wanted -= 1
        if not self.wanted:
            del self.turns.turns[self.key]
