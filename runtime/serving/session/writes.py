"""How the state of a session reaches the store: before its request is answered, or, `behind`, soon after.

Behind, the states of a session are written one after the other, each time the newest. An answer says how far
the store was (`durable_position`): a kill loses what was answered beyond that, and nothing else. Where a write
fails, the next request tries it again and is refused if it fails again, so that answers do not run away from
a store that does not take them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from ..store.base import Put, Row
from ..store.commits import Commits
from ..streams.engine import Engine
from ..transport.limits import Keeping


@dataclass
class Session:
    """A session in memory: its model, and its row without the state, which is in the pool."""

    engine: Engine
    row: Row  # as it was answered
    stored: Row  # as the store has it: version 0 and no model where it has none
    unwritten: Row | None = None  # the newest state, where the store lacks it
    writer: asyncio.Future[None] | None = None
    failure: Exception | None = None  # of the last write


class Writes:
    def __init__(self, commits: Commits, keeping: Keeping) -> None:
        self.commits, self.keeping = commits, keeping
        self.unsettled: dict[str, Session] = {}  # those with unwritten states

    async def write(self, key: str, session: Session, row: Row) -> None:
        """`row` is the session's from now on."""
        if not self.keeping.behind:
            session.row = session.stored = await self.put(key, session.stored, row)
            return
        session.row, session.unwritten = replace(row, blob=b""), row
        self.unsettled[key] = session
        if session.writer is None:
            self._begin(key, session)

    async def put(self, key: str, before: Row, row: Row, seconds: float | None = None) -> Row:
        """What the store then has, without the state; one that passes a mark is in the history, too."""
        every = self.keeping.every
        passed = row.position // every > before.position // every or row.position < before.position
        history = self.keeping.history if passed and row.blob else 0
        row = replace(row, version=before.version, epoch=before.epoch)
        seconds = self.keeping.seconds if seconds is None else seconds
        version = await self.commits.put(Put(key, row, history, seconds))
        return replace(row, version=version, blob=b"")

    def failed(self, key: str) -> bool:
        session = self.unsettled.get(key)
        return session is not None and session.failure is not None

    async def settle(self, key: str) -> None:
        """What was answered until now is in the store when this returns; raises what the store says."""
        session = self.unsettled.get(key)
        if session is None:
            return
        if session.writer is None:
            self._begin(key, session)
        for _ in range(2):  # the write that is under way, and that of the newest state
            if session.writer is not None:
                await asyncio.shield(session.writer)
        if session.failure is not None:
            raise session.failure

    async def settle_all(self) -> int:
        """How many sessions could not be written."""
        keys = [*self.unsettled]
        found = await asyncio.gather(*map(self.settle, keys), return_exceptions=True)
        return sum(isinstance(one, BaseException) for one in found)

    def _begin(self, key: str, session: Session) -> None:
        session.failure = None
        session.writer = asyncio.ensure_future(self._next(key, session))

    async def _next(self, key: str, session: Session) -> None:
        row, session.unwritten = session.unwritten, None
        assert row is not None  # nobody begins a write without
        try:
            session.stored = await self.put(key, session.stored, row)
        except Exception as error:  # raised by `settle`, to the session's next request
            session.unwritten = session.unwritten or row
            session.failure = error
        session.writer = None
        if session.unwritten is None:
            del self.unsettled[key]
        elif session.failure is None:
            self._begin(key, session)
