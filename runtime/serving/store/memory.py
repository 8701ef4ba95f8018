"""States in the memory of this process: they are lost when it ends."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter

from .base import Claim, Conflict, Crowded, Operation, Past, Put, Remove, Result, Row, without_bytes


@dataclass(slots=True)
class _Entry:
    row: Row
    expires: float
    history: deque[Row] = field(default_factory=deque)


class MemoryStore:
    durable = False
    warning = ""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.entries: dict[str, _Entry] = {}
        self.rows: Counter[tuple[str, bool]] = Counter()  # by user and whether they have a model
        self.counter = 0

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        return [self._one(operation) for operation in operations]

    def _one(self, operation: Operation) -> Result:
        entry = self._find(operation.key)
        if isinstance(operation, Remove):
            if operation.version and (conflict := _conflict(operation, entry)):
                return conflict
            self._count(operation.key, -1)
            self.entries.pop(operation.key, None)
            return entry is not None
        if isinstance(operation, Claim):
            if entry is None:
                return None
            entry.row = entry.row._replace(epoch=self._next())
            return entry.row
        return self._put(operation, entry)

    def _put(self, put: Put, entry: _Entry | None) -> int | Conflict | Crowded:
        if conflict := _conflict(put.row, entry):
            return conflict
        has_model, before = bool(put.row.model), self.entries.get(put.key)
        adds = before is None or bool(before.row.model) != has_model
        rows = self.rows[_user_of(put.key), has_model]
        if put.most and adds and rows >= put.most:
            return Crowded(rows)
        self._count(put.key, -1)
        row = put.row._replace(version=self._next())
        expires = self.clock() + put.seconds if put.seconds else float("inf")
        entry = self.entries[put.key] = entry or _Entry(row, expires)
        entry.row, entry.expires = row, expires
        self._count(put.key, 1)
        if not row.model and not put.history:
            entry.history.clear()
        if put.history:
            entry.history.append(row._replace(request_id="", answer=b"", tail=b"", epoch=0))
            while len(entry.history) > put.history:
                entry.history.popleft()
        return row.version

    def _count(self, key: str, by: int) -> None:
        if (entry := self.entries.get(key)) is not None:
            self.rows[_user_of(key), bool(entry.row.model)] += by

    def _next(self) -> int:
        self.counter += 1
        return self.counter

    def _find(self, key: str) -> _Entry | None:
        entry = self.entries.get(key)
        return None if entry is None or entry.expires <= self.clock() else entry

    def read(self, key: str) -> Row | None:
        entry = self._find(key)
        return entry.row if entry else None

    def history(self, key: str) -> list[Past]:
        entry = self._find(key)
        return [Past(row.version, row.position) for row in entry.history] if entry else []

    def past(self, key: str, version: int) -> Row | None:
        entry = self._find(key)
        return next((r for r in entry.history if r.version == version), None) if entry else None

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        keys = (key for key in self.entries if key.startswith(prefix) and key > prefix + after)
        rows = ((key, entry.row) for key in keys if (entry := self._find(key)) and entry.row.model)
        return [(key, without_bytes(row)) for key, row in nsmallest(most, rows, itemgetter(0))]

    def count(self) -> int:
        return len(self.entries)

    def ended(self) -> int:
        return sum(rows for (_, has_model), rows in self.rows.items() if not has_model)

    def rows_of(self, user: str) -> tuple[int, int]:
        return self.rows[user, True], self.rows[user, False]

    def weights(self, after: str) -> tuple[set[tuple[str, str]], str]:
        return {(entry.row.model, entry.row.fingerprint) for entry in self.entries.values()}, ""

    def sweep(self) -> bool:
        for key in [key for key in self.entries if self._find(key) is None]:
            self._count(key, -1)
            del self.entries[key]
        return False

    def close(self) -> None:
        self.entries.clear()
        self.rows.clear()


def _user_of(key: str) -> str:
    return key.rpartition("/")[0]


def _conflict(seen: Row | Remove, entry: _Entry | None) -> Conflict | None:
    row = entry.row if entry else Row(0, b"")
    same = (seen.version, seen.epoch) == (row.version, row.epoch)
    return None if same else Conflict(row.version, row.epoch, row.position)
