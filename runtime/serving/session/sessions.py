"""Sessions: streams that outlive requests, connections and processes.

A request is answered when its state is in the store. So a kill at any moment loses nothing that was answered,
and what was not answered can be sent again: with the same `request_id` it gets the answer of the first time,
with an `expected_position` it is refused (409) where the stream does not stand there. The store decides: where
another server has written meanwhile, the stream in memory is dropped and the step is done again from the store.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from ..store.base import Past, Put, Row, StoreError, StoreFull
from ..store.commits import Commits, ConflictError
from ..streams.answers import answer_of
from ..streams.engine import Done, Engine, Lost
from ..streams.models import Models
from ..streams.steps import Step
from ..streams.text import Telling
from ..transport.limits import Keeping, Limits
from ..transport.problems import Problem
from .replay import extend_tail, rebuilt
from .turns import Turns

ID = re.compile(r"[A-Za-z0-9_.~-]{1,64}")
T = TypeVar("T")
TRIES = 4  # against other servers that write the same session


@dataclass
class Session:
    """A session in memory: its model, and its row without the state, which is in the pool."""

    engine: Engine
    row: Row


class Sessions:
    def __init__(self, models: Models, commits: Commits, limits: Limits, keeping: Keeping) -> None:
        self.models, self.commits, self.limits, self.keeping = models, commits, limits, keeping
        self.turns = Turns(limits)
        self.hot: OrderedDict[str, Session] = OrderedDict()
        self.stored = 0  # sessions in the store, about

    # ---- requests

    async def step(self, user: str, name: str, step: Step, telling: Telling | None = None) -> bytes:
        """Do a step, and give the answer as JSON. The first good one makes the session."""
        async with self.turns.take(_key(user, name)) as key:
            for _ in range(TRIES):
                known = key in self.hot
                session = await self._open(key, step.model)
                if telling and known and not await self._current(key, session):
                    await self._forget(key, session)
                    continue
                try:
                    if (answer := _answered(session.row, step.request_id)) is not None:
                        return answer
                    _check_position(session.row, step.expected_position)
                except Problem:
                    await self._forget(key, session)
                    if known:  # another server may have gone on: the store knows
                        continue
                    raise
                self._check_room(session.row)
                try:
                    done = await self._run(key, session, step, user, telling)
                    shown = answer_of(session.engine.model, step, done.event)
                    answer = json.dumps(shown).encode()
                    row = replace(
                        session.row,
                        position=done.position,
                        blob=done.blob,
                        request_id=step.request_id,
                        answer=answer if step.request_id else b"",
                        tail=self._tail(session, step, done),
                    )
                    await self._store(key, session, row)
                except (Lost, ConflictError) as error:
                    await self._forget(key, session)
                    if telling and telling.begun:
                        raise Problem(
                            409,
                            f"another server wrote session {name} meanwhile: the tokens were not fed",
                        ) from error
                    continue
                except BaseException:
                    await self._forget(key, session)
                    raise
                return answer
        raise Problem(503, f"other servers write session {name} at the same time", retry_after=1)

    async def look(self, user: str, name: str) -> Row:
        """The row with its state, without taking it over."""
        key = _key(user, name)
        return _there(await _stored(self.commits.call(lambda store: store.read(key))), name)

    async def replace_state(
        self,
        user: str,
        name: str,
        blob: Callable[[Engine], bytes],
        model: str | None = None,
        expected_version: int | None = None,
        create: bool = False,
    ) -> Row:
        """Put another state in place: a fresh one, one of the history, one from elsewhere."""
        async with self.turns.take(_key(user, name)) as key:
            self.hot.pop(key, None)  # the store knows the version
            session = await self._open(key, model)
            try:
                if not create and not session.row.version:
                    raise _no_session(name)
                if expected_version not in (None, session.row.version):
                    raise Problem(
                        412,
                        f"If-Match is {expected_version}, but the session is at version"
                        f" {session.row.version}",
                        position=session.row.position,
                    )
                self._check_room(session.row)
                state = blob(session.engine)
                row = replace(
                    session.row,
                    position=session.engine.check(state),
                    blob=state,
                    request_id="",
                    answer=b"",
                    tail=b"",
                )
                session.engine.put(key, state)
                await self._store(key, session, row)
            except ConflictError as error:
                await self._forget(key, session)
                raise Problem(409, str(error), position=error.conflict.position) from error
            except BaseException:
                await self._forget(key, session)
                raise
            return session.row

    async def fork(self, user: str, name: str, to: str) -> Row:
        async with self.turns.take(_key(user, name)) as key:
            row = _there(await _stored(self.commits.call(lambda store: store.read(key))), name)
        self._check_room(Row(0, b""))
        copy = replace(row, version=0, epoch=0, request_id="", answer=b"")
        try:
            version = await _stored(self.commits.put(self._put(_key(user, to), copy, Row(0, b""))))
        except ConflictError as error:
            raise Problem(409, f"there is a session {to} already") from error
        self.stored += 1
        return replace(copy, version=version)

    async def remove(self, user: str, name: str) -> None:
        async with self.turns.take(_key(user, name)) as key:
            session = self.hot.get(key)
            if session is not None:
                await self._forget(key, session)
            if not await _stored(self.commits.remove(key)):
                raise _no_session(name)
            self.stored -= 1

    async def history(self, user: str, name: str) -> list[Past]:
        await self.look(user, name)
        key = _key(user, name)
        return await _stored(self.commits.call(lambda store: store.history(key)))

    async def past(self, user: str, name: str, version: int) -> Row:
        key = _key(user, name)
        row = await _stored(self.commits.call(lambda store: store.past(key, version)))
        if row is None:
            raise Problem(404, f"session {name} has no state of version {version} in its history")
        return row

    async def sweep(self) -> None:
        """Forget sessions whose time is over, and count the others."""
        await self.commits.call(lambda store: store.sweep())
        self.stored = await self.commits.call(lambda store: store.count())

    # ---- parts

    async def _open(self, key: str, name: str | None) -> Session:
        """The session in memory, taken over from the store where it is not; a new one where there is none."""
        session = self.hot.get(key)
        if session is None or not self._usable(key, session):
            session = await self._claim(key, name)
            self.hot[key] = session
            while len(self.hot) > self.limits.hot:
                self.hot.popitem(last=False)
        self.hot.move_to_end(key)
        if name not in (None, session.engine.name):
            raise Problem(409, f"the session is of model {session.engine.name}, not of {name:.80}")
        return session

    def _usable(self, key: str, session: Session) -> bool:
        """Whether the pool has its stream, and the model is still the one to use."""
        engine = session.engine
        if self.keeping.replay and engine is not self.models.newest(engine.name):
            return False
        return not engine.streams.closed and engine.has(key)

    async def _claim(self, key: str, name: str | None) -> Session:
        row = await _stored(self.commits.claim(key))
        if row is None:
            engine = self.models.newest(name)
            await engine.drop(key)  # of a session that others removed, or whose time was over
            return Session(engine, self._of(engine, Row(0, b"")))
        if row.model not in self.models.engines:
            names = ", ".join(self.models.engines)
            raise Problem(
                409,
                f"the session is of model {row.model}; this server has {names}",
                position=row.position,
            )
        found = self.models.of(row.model, row.fingerprint)
        newest = self.models.newest(row.model)
        if self.keeping.replay and found is not newest:
            state = await rebuilt(newest, row)
            row = self._of(newest, replace(row, position=newest.check(state), blob=state))
            found = newest
        if found is None:
            raise Problem(
                409,
                f"the session's state is of other weights of model {row.model} ({row.fingerprint});"
                " accepted: a server that has them, or --replay",
                position=row.position,
            )
        level = found.model.level
        if self.keeping.same_level and level != row.level:
            raise Problem(
                409,
                f"the session was computed with {row.level}, this server has {level} (--same-level)",
                position=row.position,
            )
        found.put(key, row.blob)
        return Session(found, replace(row, blob=b"", level=level))

    def _of(self, engine: Engine, row: Row) -> Row:
        model = engine.model
        return replace(row, model=engine.name, fingerprint=model.fingerprint, level=model.level)

    async def _run(
        self, key: str, session: Session, step: Step, user: str, telling: Telling | None
    ) -> Done:
        engine, position = session.engine, session.row.position
        emit = telling.of(engine.model) if telling else None
        return await engine.run(key, step, position, user, self.limits.seconds, emit)

    async def _current(self, key: str, session: Session) -> bool:
        """Whether no other server has written since: asked before tokens are sent as they come."""
        row = await _stored(self.commits.call(lambda store: store.read(key))) or Row(0, b"")
        return (row.version, row.epoch) == (session.row.version, session.row.epoch)

    async def _store(self, key: str, session: Session, row: Row) -> None:
        version = await _stored(self.commits.put(self._put(key, row, session.row)))
        self.stored += not session.row.version
        session.row = replace(row, version=version, blob=b"")

    def _put(self, key: str, row: Row, before: Row) -> Put:
        """With its state in the history, if it passes a mark: every n-th step, or a jump back."""
        every = self.keeping.every
        passed = row.position // every > before.position // every or row.position < before.position
        return Put(key, row, self.keeping.history if passed else 0, self.keeping.seconds)

    async def _forget(self, key: str, session: Session) -> None:
        """The store has the session as it was."""
        self.hot.pop(key, None)
        await session.engine.drop(key)

    def _tail(self, session: Session, step: Step, done: Done) -> bytes:
        keep = self.keeping.replay
        return extend_tail(session.row.tail, done.fed, step.dt, keep) if keep else b""

    def _check_room(self, row: Row) -> None:
        if not row.version and self.stored >= self.limits.sessions:
            raise Problem(
                507,
                f"there are {self.stored} sessions;"
                f" accepted: {self.limits.sessions} ({self.limits.flag('sessions')})",
            )


async def _stored(what: Awaitable[T]) -> T:
    """What the store answers; where it cannot, the request is refused."""
    try:
        return await what
    except StoreFull as error:
        raise Problem(507, f"the state could not be stored: {error}") from error
    except StoreError as error:
        raise Problem(503, f"the store does not answer: {error}", retry_after=1) from error


def _key(user: str, name: str) -> str:
    if not ID.fullmatch(name):
        raise Problem(400, f"session {name!r:.80}; accepted: 1 to 64 of A-Z a-z 0-9 - _ . ~")
    return f"{user}/{name}"


def _there(row: Row | None, name: str) -> Row:
    if row is None:
        raise _no_session(name)
    return row


def _no_session(name: str) -> Problem:
    return Problem(404, f"there is no session {name}")


def _answered(row: Row, request_id: str) -> bytes | None:
    """The answer of the last request, if this one is the same."""
    if not request_id or not row.request_id:
        return None
    if request_id == row.request_id:
        return row.answer
    if request_id.rpartition(" ")[0] == row.request_id.rpartition(" ")[0]:
        raise Problem(
            409,
            f"request_id {request_id.rpartition(' ')[0]!r} was the id of another request",
            position=row.position,
        )
    return None


def _check_position(row: Row, expected: int | None) -> None:
    if expected not in (None, row.position):
        raise Problem(
            409,
            f"expected_position = {expected}, but the stream is at {row.position}",
            position=row.position,
        )
