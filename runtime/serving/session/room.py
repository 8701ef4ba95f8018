"""How many sessions there are, and whether a user may have one more.

All sessions together are counted by each server, about once a minute, since their limit protects the disk.
Those of a user are counted by the store, which refuses one too many: a user at the limit must leave room for
the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..store.base import Row
from ..store.commits import Commits
from ..transport.limits import Limits
from ..transport.problems import Problem
from .writes import stored

ENDED = 60.0  # seconds during which the request that ended a session can be repeated
RECOUNT = 1.0  # least number of seconds between two counts of the sessions because there is no room


class Room:
    """`users()` is the number of users among whom the sessions are divided if --max-share is 0."""

    def __init__(self, commits: Commits, limits: Limits, users: Callable[[], int]) -> None:
        self.commits, self.limits, self.users = commits, limits, users
        self.stored = 0  # approximate number of sessions in the store
        self.ended = 0  # and of ended ones whose last answer is kept
        self.counting, self.counted = asyncio.Lock(), float("-inf")  # when they were last counted

    def share(self) -> int:
        """How many sessions a user may have; 0 if there is no other limit than that of all sessions."""
        limits = self.limits
        share = limits.share or max(1, limits.sessions // max(1, self.users()))
        return share if share < limits.sessions else 0

    def count_new(self, before: Row) -> None:
        """Count a session that was stored in the place of `before`, which may be the row of an ended one."""
        self.stored += 1
        self.ended -= has_ended(before)

    def count_end(self, before: Row, keeps_answer: bool) -> None:
        self.stored -= bool(before.model)
        self.ended += keeps_answer - has_ended(before)

    async def sweep(self) -> None:
        """Remove expired sessions and count the others."""
        while await self.commits.call(lambda store: store.sweep()):
            pass  # writes that wait are done in between
        rows, self.ended = await self.commits.call(lambda store: (store.count(), store.ended()))
        self.stored, self.counted = rows - self.ended, time.monotonic()

    async def check(self, user: str, before: Row, keeps_answer: bool = False) -> None:
        """For a new session, and for the answer of one that ends, which is kept for a while. If there seems to
        be no room, sessions may have expired, or other servers may have removed them: they are counted
        again."""
        is_new, keeps_answer = not before.model, keeps_answer and not has_ended(before)
        if await self._lack(user, is_new, keeps_answer) is None:
            return
        async with self.counting:
            if time.monotonic() - self.counted >= RECOUNT:
                try:
                    await stored(self.sweep())
                finally:  # those who wait do not try a store that fails one after the other
                    self.counted = time.monotonic()
        if (problem := await self._lack(user, is_new, keeps_answer)) is not None:
            raise problem

    async def _lack(self, user: str, is_new: bool, keeps_answer: bool) -> Problem | None:
        most = self.limits.sessions
        if is_new and self.stored >= most:
            return self._refusal("sessions", most, self.stored)
        if keeps_answer and self.ended >= most:
            return self._refusal("sessions", most, ended=self.ended)
        if not (share := self.share()) or not (is_new or keeps_answer):
            return None
        live, ended = await stored(self.commits.call(lambda store: store.rows_of(user)))
        if is_new and live >= share:
            return self._refusal("share", share, live)
        if keeps_answer and ended >= share:
            return self._refusal("share", share, ended=ended)
        return None

    def _refusal(self, limit: str, most: int, live: int = 0, ended: int = 0) -> Problem:
        of = " of this user" if limit == "share" else ""
        what = f"there are {live} sessions{of}"
        if ended:
            what = f"the last answers of {ended} ended sessions{of} are kept"
        detail = f"{what}; accepted: {most} ({self.limits.flag(limit)})"
        return Problem(503, detail, int(ENDED)) if ended else Problem(507, detail)


def has_ended(row: Row) -> bool:
    return bool(row.version) and not row.model
