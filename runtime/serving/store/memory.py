"""States in the memory of this process: they are lost when it ends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from operator import itemgetter

from .base import Claim, Conflict, Operation, Past, Put, Remove, Result, Row, without_bytes


@dataclass(slots=True)
class _Kept:
    row: Row
    expires: float
    history: deque[Row] = field(default_factory=deque)


class MemoryStore:
    durable = False
    warning = ""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.kept: dict[str, _Kept] = {}
        self.counter = 0

    def apply(self, operations: Sequence[Operation]) -> list[Result]:
        return [self._one(operation) for operation in operations]

    def _one(self, operation: Operation) -> Result:
        found = self._find(operation.key)
        if isinstance(operation, Remove):
            if operation.version and (conflict := _conflict(operation, found)):
                return conflict
            self.kept.pop(operation.key, None)
            return found is not None
        if isinstance(operation, Claim):
            if found is None:
                return None
            found.row = found.row._replace(epoch=self._next())
            return found.row
        return self._put(operation, found)

    def _put(self, put: Put, found: _Kept | None) -> int | Conflict:
        if conflict := _conflict(put.row, found):
            return conflict
        row = put.row._replace(version=self._next())
        expires = self.clock() + put.seconds if put.seconds else float("inf")
        kept = self.kept[put.key] = found or _Kept(row, expires)
        kept.row, kept.expires = row, expires
        if not row.model and not put.history:
            kept.history.clear()
        if put.history:
            kept.history.append(row._replace(request_id="", answer=b"", tail=b"", epoch=0))
            while len(kept.history) > put.history:
                kept.history.popleft()
        return row.version

    def _next(self) -> int:
        self.counter += 1
        return self.counter

    def _find(self, key: str) -> _Kept | None:
        kept = self.kept.get(key)
        return None if kept is None or kept.expires <= self.clock() else kept

    def read(self, key: str) -> Row | None:
        kept = self._find(key)
        return kept.row if kept else None

    def history(self, key: str) -> list[Past]:
        kept = self._find(key)
        return [Past(row.version, row.position) for row in kept.history] if kept else []

    def past(self, key: str, version: int) -> Row | None:
        kept = self._find(key)
        return next((r for r in kept.history if r.version == version), None) if kept else None

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        keys = (key for key in self.kept if key.startswith(prefix) and key > prefix + after)
        rows = ((key, found.row) for key in keys if (found := self._find(key)) and found.row.model)
        return [(key, without_bytes(row)) for key, row in nsmallest(most, rows, itemgetter(0))]

    def count(self) -> int:
        return len(self.kept)

    def ended(self) -> int:
        return sum(not kept.row.model for kept in self.kept.values())

    def sweep(self) -> bool:
        for key in [key for key in self.kept if self._find(key) is None]:
            del self.kept[key]
        return False

    def close(self) -> None:
        self.kept.clear()


def _conflict(seen: Row | Remove, found: _Kept | None) -> Conflict | None:
    row = found.row if found else Row(0, b"")
    same = (seen.version, seen.epoch) == (row.version, row.epoch)
    return None if same else Conflict(row.version, row.epoch, row.position)
