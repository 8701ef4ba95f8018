"""Writes the state of a session to the store: before its request is answered or, with `behind`, soon after.

With `behind`, the states of a session are written one at a time, and only the newest. An answer contains the
position that was stored by then (`durable_position`): a kill loses only what was answered after it. If a write
fails, the next request retries it, and is refused if the retry fails too, so that answers do not run ahead of a
broken store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from ..store.base import Put, Row, StoreError, StoreFull
from ..store.commits import Commits, ConflictError
from ..streams.engine import Engine
from ..transport.limits import Keeping
from ..transport.problems import Problem

T = TypeVar("T")


@dataclass
class Session:
    """A session in memory: its model, and its row without the state, which is in the pool."""

    engine: Engine
    row: Row  # as of the last answer
    stored: Row  # as in the store; version 0 and no model if the store has no such row
    unwritten: Row | None = None  # the newest state, if it has not been stored yet
    writer: asyncio.Future[None] | None = None
    failure: Exception | None = None  # of the last write
    unsure: list[Row] = field(default_factory=list)  # writes that failed, but may be in the store


async def stored(what: Awaitable[T]) -> T:
    """Awaits an answer from the store; if the store fails, the request is refused."""
    try:
        return await what
    except StoreFull as error:
        raise Problem(507, f"the state could not be stored: {error}") from error
    except StoreError as error:
        raise Problem(503, f"the store does not answer: {error}", retry_after=1) from error


class Writes:
    """`share()` is how many sessions a user may have. With `behind`, the store does not check it, since the
    request has been answered."""

    def __init__(self, commits: Commits, keeping: Keeping, share: Callable[[], int]) -> None:
        self.commits, self.keeping, self.share = commits, keeping, share
        self.unsettled: dict[str, Session] = {}  # those with unwritten states

    async def write(self, key: str, session: Session, row: Row) -> None:
        """Make `row` the session's current row."""
        if not self.keeping.behind:
            session.row = session.stored = await self.put(key, session.stored, row)
            return
        session.row, session.unwritten = row._replace(blob=b""), row
        self.unsettled[key] = session
        if session.writer is None:
            self._begin(key, session)

    async def put(self, key: str, before: Row, row: Row, seconds: float | None = None) -> Row:
        """Store a row; returns it without the state. Every --history-every steps the state is also added to the
        history."""
        every = self.keeping.every
        passed = row.position // every > before.position // every or row.position < before.position
        history = self.keeping.history if passed and row.blob else 0
        if (row.version, row.epoch) != (before.version, before.epoch):
            row = row._replace(version=before.version, epoch=before.epoch)
        seconds = self.keeping.seconds if seconds is None else seconds
        adds = not before.version or bool(before.model) != bool(row.model)
        most = self.share() if adds and not self.keeping.behind else 0
        version = await self.commits.put(Put(key, row, history, seconds, most))
        return row._replace(version=version, blob=b"")

    def failed(self, key: str) -> bool:
        session = self.unsettled.get(key)
        return session is not None and session.failure is not None

    async def settle(self, key: str) -> None:
        """Waits until the state after the last answer is in the store; raises the store's error."""
        session = self.unsettled.get(key)
        if session is None:
            return
        if session.writer is None:
            self._begin(key, session)
        for _ in range(2):  # the current write, then the write of the newest state
            if session.writer is not None:
                await asyncio.shield(session.writer)
        if session.failure is not None:
            raise session.failure

    async def settle_all(self) -> int:
        """Writes all unwritten sessions; returns how many failed."""
        keys = [*self.unsettled]
        outcomes = await asyncio.gather(*map(self.settle, keys), return_exceptions=True)
        return sum(isinstance(one, BaseException) for one in outcomes)

    def _begin(self, key: str, session: Session) -> None:
        session.failure = None
        session.writer = asyncio.ensure_future(self._next(key, session))

    async def _next(self, key: str, session: Session) -> None:
        row, session.unwritten = session.unwritten, None
        assert row is not None  # a write begins only with a row
        try:
            if session.unsure:
                await self._find_out(key, session)
            try:
                session.stored = await self.put(key, session.stored, row)
            except ConflictError:
                if not await self._find_out(key, session):
                    raise
                session.stored = await self.put(key, session.stored, row)
            session.unsure.clear()
        except Exception as error:  # `settle` raises it in the session's next request
            if row not in session.unsure:
                session.unsure.append(row)
            session.unwritten = session.unwritten or row
            session.failure = error
        session.writer = None
        if session.unwritten is None:
            del self.unsettled[key]
        elif session.failure is None:
            self._begin(key, session)

    async def _find_out(self, key: str, session: Session) -> bool:
        """Whether the row in the store is one of `unsure`: a store may fail and still write, at once or later,
        as when the answer of Redis is lost. The next write would then be taken for that of another server."""
        row = await self.commits.call(lambda store: store.read(key))
        if row is None:
            return False
        epoch = session.stored.epoch
        own = [one._replace(version=row.version, epoch=epoch) for one in session.unsure]
        if row not in own:
            return False
        session.stored = row._replace(blob=b"")
        return True
