"""One request at a time per session, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .deadline import within
from .limits import Limits
from .problems import Problem


class _Turn:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.wanted = 0


class Turns:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.turns: dict[str, _Turn] = {}

    @asynccontextmanager
    async def take(self, key: str) -> AsyncIterator[None]:
        turn = self.turns.setdefault(key, _Turn())
        if turn.wanted > self.limits.waiting:
            raise Problem(
                429,
                f"{turn.wanted} requests wait for this session;"
                f" accepted: {self.limits.waiting} ({self.limits.flag('waiting')})",
                retry_after=1,
            )
        turn.wanted += 1
        try:
            try:
                await within(self.limits.seconds, turn.lock.acquire())
            except asyncio.TimeoutError as error:
                raise Problem(
                    504,
                    f"other requests of this session took {self.limits.seconds:g} s"
                    f" ({self.limits.flag('seconds')})",
                ) from error
            try:
                yield
            finally:
                turn.lock.release()
        finally:
            turn.wanted -= 1
            if not turn.wanted:
                del self.turns[key]
