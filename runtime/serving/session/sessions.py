"""Sessions: streams that outlive requests, connections and processes.

A request is answered once the state after it is in the store. So a kill at any moment loses nothing that was
answered, and an unanswered request can be sent again: with the same `request_id` it gets the first answer, and
with an `expected_position` it is refused (409) if the stream is at another position. The store is
authoritative: if another server has written the session in the meantime, the stream in memory is dropped and
the step is repeated from the store. With `--store-writes behind` a request is answered earlier: see
session/writes.py.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from operator import methodcaller

from ..store.base import Past, Remove, Row
from ..store.commits import Commits, ConflictError
from ..streams.answers import answer_of, encoded, size_of
from ..streams.engine import Done, Engine, Lost
from ..streams.models import Models, Weights
from ..streams.steps import Step
from ..streams.text import Telling
from ..transport.limits import Keeping, Limits
from ..transport.off_loop import off_loop
from ..transport.problems import Problem
from .answered import Before, answered, remembered
from .replay import extend_tail, rebuilt
from .room import ENDED, Room
from .turns import Turns
from .writes import Session, Writes, stored

ID = re.compile(r"[A-Za-z0-9_.~-]{1,64}")
TRIES = 4  # attempts when other servers write the same session


class Sessions:
    def __init__(
        self,
        models: Models,
        commits: Commits,
        limits: Limits,
        keeping: Keeping,
        users: Callable[[], int] = lambda: 1,
    ) -> None:
        self.models, self.commits, self.limits, self.keeping = models, commits, limits, keeping
        self.turns = Turns(limits)
        self.room = Room(commits, limits, users)
        self.writes = Writes(commits, keeping, self.room.share)
        self.hot: OrderedDict[str, Session] = OrderedDict()

    # ---- requests

    async def step(self, user: str, name: str, step: Step, telling: Telling | None = None) -> bytes:
        """Do a step and return the answer as JSON. The first step that succeeds creates the session."""
        async with self.turns.take(_key(user, name)) as key:
            for _ in range(TRIES):
                if self.writes.failed(key):
                    await self._settle(key)
                known = key in self.hot
                session = await self._open(key, step.model, step.version)
                if telling and known and not await self._current(key, session):
                    await self._forget(key, session)
                    continue
                try:
                    known_answer = answered(session.row, step.request_id)
                    if known_answer is None and not step.start:
                        _check_position(session.row, step.expected_position)
                except Problem:
                    await self._forget(key, session)
                    if known:  # another server may have continued the session: ask the store
                        continue
                    raise
                if isinstance(known_answer, Before):
                    return await self._again(session, step, user, known_answer)
                if known_answer is not None:
                    return known_answer
                unsettled = key in self.writes.unsettled  # counted, but not yet in the store
                before = session.row if unsettled else session.stored
                try:
                    await self.room.check(user, before, step.end and bool(step.request_id))
                    if step.start:
                        self._start(key, session)
                    state = session.engine.save(key) if step.request_id else b""
                    done = await self._run(key, session, step, user, telling)
                    # A restart is stored before it is answered, because the store may hold a later position.
                    durable = done.position if step.start else session.stored.position
                    answer = await self._answer(session.engine, step, done, durable)
                    row = session.row._replace(
                        position=done.position,
                        blob=done.blob,
                        level=session.engine.model.level,
                        tail=self._tail(session, step, done),
                        **remembered(session.row, step.request_id, answer, state),
                    )
                    if step.end:
                        await self._end(key, session, row, bool(step.request_id))
                    else:
                        await self._store(key, session, row)
                        if step.start:
                            await self._settle(key)
                except (Lost, ConflictError) as error:
                    await self._forget(key, session)
                    if telling and telling.begun:
                        if isinstance(error, Lost):
                            raise
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
        """Read the row with its state, without claiming it."""
        key = _key(user, name)
        await self._settle(key)
        return _live(await stored(self.commits.call(lambda store: store.read(key))), name)

    async def replace_state(
        self,
        user: str,
        name: str,
        blob: Callable[[Engine], bytes],
        model: str | None = None,
        expected_version: int | None = None,
        create: bool = False,
    ) -> Row:
        """Replaces the state with a fresh one, one from the history, or one that the client sent."""
        async with self.turns.take(_key(user, name)) as key:
            self.hot.pop(key, None)  # the store knows the version
            session = await self._open(key, model)
            try:
                if not create and not session.stored.model:
                    raise _no_session(name)
                if expected_version not in (None, session.row.version):
                    raise Problem(
                        412,
                        f"If-Match is {expected_version}, but the session is at version"
                        f" {session.row.version}",
                        position=session.row.position,
                    )
                await self.room.check(user, session.stored)
                state = blob(session.engine)
                row = session.row._replace(
                    position=session.engine.check(state),
                    blob=state,
                    level=session.engine.model.level,
                    request_id="",
                    answer=b"",
                    tail=b"",
                )
                session.engine.put(key, state)
                await self._store(key, session, row)
                await self._settle(key)
            except ConflictError as error:
                await self._forget(key, session)
                raise Problem(409, str(error), position=error.conflict.position) from error
            except BaseException:
                await self._forget(key, session)
                raise
            return session.stored

    async def fork(self, user: str, name: str, to: str, request_id: str = "") -> Row:
        """The copy. A repeated request gets it again, even if the original is gone."""
        missing, absent = None, Row(0, b"")
        try:
            async with self.turns.take(_key(user, name)):
                row = await self.look(user, name)
        except Problem as problem:
            if not request_id or problem.status != 404:
                raise
            missing = problem
        async with self.turns.take(_key(user, to)) as key:
            await self._settle(key)
            target = await stored(self.commits.call(lambda store: store.read(key))) or absent
            if target.model and _is_copy_of(target, request_id):
                return target
            if missing is not None:
                raise missing
            copy = row._replace(version=0, epoch=0, request_id="", answer=b"")
            answer = encoded({"position": row.position})
            copy = copy._replace(**remembered(copy, request_id, answer, copy.blob))
            await self.room.check(user, target)  # one that exists is a conflict
            before = absent if target.model else target  # one that has ended
            try:
                copy = await stored(self.writes.put(key, before, copy))
            except ConflictError as error:
                raise Problem(409, f"session {to} already exists") from error
        self.room.count_new(before)
        return copy

    async def remove(self, user: str, name: str) -> None:
        async with self.turns.take(_key(user, name)) as key:
            await self.look(user, name)
            session = self.hot.get(key)
            if session is not None:
                await self._forget(key, session)
            removed = await stored(self.commits.remove(Remove(key)))
            self.room.stored -= removed  # after the wait, in which other requests count as well

    async def page(self, user: str, after: str, most: int) -> list[tuple[str, Row]]:
        """The user's sessions sorted by id, starting after `after`; the rows have no state."""
        prefix = f"{user}/"
        rows = await stored(self.commits.call(lambda store: store.page(prefix, after, most)))
        return [(key.removeprefix(prefix), row) for key, row in rows]

    async def history(self, user: str, name: str) -> list[Past]:
        await self.look(user, name)
        key = _key(user, name)
        return await stored(self.commits.call(lambda store: store.history(key)))

    async def past(self, user: str, name: str, version: int) -> Row:
        key = _key(user, name)
        row = await stored(self.commits.call(lambda store: store.past(key, version)))
        if row is None:
            raise Problem(404, f"session {name} has no state of version {version} in its history")
        return row

    async def reload(self) -> list[str]:
        """Loads the model files that have changed; returns the names of their models."""
        changed = await self.models.reload(self._weights_in_use)
        for key, session in [*self.hot.items()]:
            if session.engine.streams.closed:  # the session would keep the weights in memory
                del self.hot[key]
        return changed

    async def _weights_in_use(self) -> set[Weights]:
        """The weights that sessions need, in the store or not there yet. Their history needs no others: a state
        of other weights than the session's is not restored."""
        used, after, more = set[Weights](), "", True
        while more:
            part, after = await self.commits.call(methodcaller("weights", after))
            used, more = used | part, bool(after)
        sessions = (*self.hot.values(), *self.writes.unsettled.values())
        return used | {(one.row.model, one.row.fingerprint) for one in sessions}

    # ---- parts

    async def _open(self, key: str, name: str | None, version: str | None = None) -> Session:
        """The session in memory; otherwise it is claimed from the store, or created if there is none."""
        session = self.hot.get(key)
        if session is None or not self._usable(key, session):
            await self._settle(key)
            session = await self._claim(key, name, version)
            self.hot[key] = session
            while len(self.hot) > self.limits.hot:
                self.hot.popitem(last=False)
        self.hot.move_to_end(key)
        _check_model(session.engine, name, version)
        return session

    def _usable(self, key: str, session: Session) -> bool:
        """Whether the pool still has the session's stream, and its model is still the one to use."""
        engine = session.engine
        if self.keeping.replay and engine is not self.models.newest(engine.name):
            return False
        return not engine.streams.closed and engine.has(key)

    async def _claim(self, key: str, name: str | None, version: str | None) -> Session:
        row = await stored(self.commits.call(lambda store: store.read(key)))
        if row is not None and row.model:  # a refused request must not stop the session's owner
            engine = self._engine_of(row)
            _check_model(engine, name, version)
            if row.fingerprint != engine.model.fingerprint:
                await rebuilt(engine, row)  # raises an error if it cannot
            row = await stored(self.commits.claim(key))
        if row is None or not row.model:
            engine, row = self.models.version(name, version), row or Row(0, b"")
            # A leftover of a session that was removed by another server or has expired.
            await engine.drop(key)
            return Session(engine, self._of(engine, row), stored=row)
        engine = self._engine_of(row)  # again: another server may have written it meanwhile
        if row.fingerprint != engine.model.fingerprint:
            state = await rebuilt(engine, row)
            row = self._of(engine, row._replace(position=engine.check(state), blob=state))
        engine.put(key, row.blob)
        row = row._replace(blob=b"")
        return Session(engine, row, stored=row)

    def _engine_of(self, row: Row) -> Engine:
        """The model that continues a stored session; with --replay, the newest version."""
        if row.model not in self.models.engines:
            names = ", ".join(self.models.engines)
            raise Problem(
                409,
                f"the session belongs to model {row.model}; this server has {names}",
                position=row.position,
            )
        engine = self.models.of(row.model, row.fingerprint)
        newest = self.models.newest(row.model)
        if self.keeping.replay and engine is not newest:
            return newest
        if engine is None:
            missing = self.models.missing(row.model, row.fingerprint)
            raise Problem(409, missing, position=row.position)
        level = engine.model.level
        if self.keeping.same_level and level != row.level:
            raise Problem(
                409,
                f"the session was computed with {row.level}, this server has {level} (--same-level)",
                position=row.position,
            )
        return engine

    def _of(self, engine: Engine, row: Row) -> Row:
        return row._replace(model=engine.name, fingerprint=engine.model.fingerprint)

    async def _run(
        self, key: str, session: Session, step: Step, user: str, telling: Telling | None
    ) -> Done:
        engine, position = session.engine, session.row.position
        emit = telling.of(engine.model) if telling else None
        return await engine.run(key, step, position, user, self.limits.seconds, emit)

    async def _answer(self, engine: Engine, step: Step, done: Done, durable: int) -> bytes:
        def answer() -> bytes:
            shown = answer_of(engine.model, step, done.event)
            if self.keeping.behind:
                shown["durable_position"] = durable
            return encoded(shown)

        return await off_loop(size_of(step, done.event), answer)

    async def _again(self, session: Session, step: Step, user: str, state: Before) -> bytes:
        """The answer to a step that was done, computed from the state before it in a stream of its own."""
        row, engine = session.row, self.models.that_reads(state)
        if engine is None or engine.model.level != row.level:
            source = f"was computed with {row.level}" if engine else "is from other weights"
            detail = f"the request was done, and its answer, too long to keep, {source}"
            raise Problem(409, detail, position=row.position)
        key = f"~{secrets.token_hex(12)}"
        try:
            engine.put(key, state)
            done = await engine.run(key, step, engine.check(state), user, self.limits.seconds)
        finally:
            await engine.drop(key)
        return await self._answer(engine, step, done, session.stored.position)

    async def _current(self, key: str, session: Session) -> bool:
        """Whether no other server has written the session since; checked before tokens are streamed."""
        await self._settle(key)
        row = await stored(self.commits.call(lambda store: store.read(key))) or Row(0, b"")
        return (row.version, row.epoch) == (session.stored.version, session.stored.epoch)

    def _start(self, key: str, session: Session) -> None:
        """Replaces the session's stream with an empty one; the store keeps the old one until the step is
        done."""
        session.engine.put(key, session.engine.fresh())
        fresh = Row(0, b"", version=session.row.version, epoch=session.row.epoch)
        session.row = self._of(session.engine, fresh)

    async def _end(self, key: str, session: Session, row: Row, keep_answer: bool) -> None:
        """Remove the session. Its last answer is kept for a while, so that the request can be repeated."""
        await self._settle(key)
        before = session.stored
        if keep_answer:
            ended = Row(0, b"", level=row.level, request_id=row.request_id, answer=row.answer)
            await stored(self.writes.put(key, before, ended, ENDED))
        elif before.version:
            await stored(self.commits.remove(Remove(key, before.version, before.epoch)))
        self.room.count_end(before, keep_answer)
        await self._forget(key, session)

    async def _store(self, key: str, session: Session, row: Row) -> None:
        before, new = session.stored, key not in self.writes.unsettled
        await stored(self.writes.write(key, session, row))
        if new and not before.model:
            self.room.count_new(before)

    async def _settle(self, key: str) -> None:
        """Wait until all answered steps are stored; if another server wrote the session in the meantime, raise
        an error."""
        try:
            await stored(self.writes.settle(key))
        except ConflictError as error:
            session = self.writes.unsettled.pop(key, None)
            after = ""
            if session is not None:  # otherwise another waiting request has already done this
                await self._forget(key, session)
                after = f" after position {session.stored.position}"
            raise Problem(
                409,
                f"another server wrote the session: what was answered{after} is lost"
                " (--store-writes behind)",
                position=error.conflict.position,
            ) from error

    async def _forget(self, key: str, session: Session) -> None:
        """Drop the session from memory; the store has its last good state."""
        self.hot.pop(key, None)
        await session.engine.drop(key)

    def _tail(self, session: Session, step: Step, done: Done) -> bytes:
        keep = self.keeping.replay
        return extend_tail(session.row.tail, done.fed, step.dt, keep) if keep else b""


def _key(user: str, name: str) -> str:
    if not ID.fullmatch(name):
        raise Problem(400, f"session {name!r:.80}; accepted: 1 to 64 of A-Z a-z 0-9 - _ . ~")
    return f"{user}/{name}"


def _live(row: Row | None, name: str) -> Row:
    if row is None or not row.model:  # it has ended
        raise _no_session(name)
    return row


def _check_model(engine: Engine, name: str | None, version: str | None) -> None:
    if name not in (None, engine.name):
        raise Problem(409, f"the session belongs to model {engine.name}, not {name:.80}")
    if version and version != (own := engine.model.checksum):
        raise Problem(409, f"the session belongs to version {own}, not {version:.80}")


def _is_copy_of(copy: Row, request_id: str) -> bool:
    """Whether the session is the copy of a fork with this id; an error if the session has changed since."""
    if (answer := answered(copy, request_id)) is None:
        return False
    if answer != encoded({"position": copy.position}):
        detail = "the fork was done, but its copy has changed since"
        raise Problem(409, detail, position=copy.position)
    return True


def _no_session(name: str) -> Problem:
    return Problem(404, f"there is no session {name}")


def _check_position(row: Row, expected: int | None) -> None:
    if expected not in (None, row.position):
        raise Problem(
            409,
            f"expected_position = {expected}, but the stream is at {row.position}",
            position=row.position,
        )
