"""A store on its own thread, for asyncio: operations that arrive while a batch is written form the next batch.

So the number of transactions depends on the disk, not on the number of clients. What one iteration of the event
loop submits is handed over all at once, at its end: waking the thread for each operation would make both
threads wait for the GIL. An operation that was awaited without an error is durable, if the store is durable.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from .base import (
    Claim,
    Conflict,
    Crowded,
    Operation,
    Put,
    Remove,
    Row,
    StateStore,
    StoreError,
    StoreFull,
)

T = TypeVar("T")
Waiting = tuple[Operation | Callable[[], Any], asyncio.Future[Any]]
MOST = 512  # operations of one transaction
HUNG = 1.0  # seconds after which a failure means that the store does not answer
CHECKED = 1.0  # seconds for which the outcome of a check holds
NOBODY = "/"  # the key of no row


class ConflictError(Exception):
    """A Put or Remove was refused: another writer came first."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(f"another writer stored version {conflict.version}")
        self.conflict = conflict


class Commits:
    """The store; `await` its operations in the event loop that created this object."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.loop = store, asyncio.get_running_loop()
        self.fresh: list[Waiting] = []  # submitted in this iteration of the loop
        self.handed: SimpleQueue[list[Waiting]] = SimpleQueue()  # an empty list means the end
        self.closed = False
        self.batches = self.operations = 0
        self.checking: asyncio.Future[Any] | None = None
        self.checked = float("-inf")
        self.thread = threading.Thread(target=self._run, name="tsm-store", daemon=True)
        self.thread.start()

    async def put(self, put: Put) -> int:
        """The new version; raises ConflictError, or StoreFull if the user has too many rows."""
        result = _done(await self._submit(put))
        if isinstance(result, Crowded):
            has = f"its user has {result.rows} sessions like it"
            raise StoreFull(f"{has}; accepted: {put.most} (--max-share)")
        return int(result)

    async def claim(self, key: str) -> Row | None:
        row: Row | None = await self._submit(Claim(key))
        return row

    async def remove(self, remove: Remove) -> bool:
        """Whether the row was there; raises ConflictError."""
        return bool(_done(await self._submit(remove)))

    async def call(self, function: Callable[[StateStore], T]) -> T:
        """Runs a function that reads the store, on the store's thread."""
        result: T = await self._submit(lambda: function(self.store))
        return result

    async def check(self) -> None:
        """Raises a StoreError if the store refuses a transaction that changes no row; at most one a second is
        tried."""
        if self.checking is None or monotonic() - self.checked >= CHECKED:
            self.checking, self.checked = self._submit(Remove(NOBODY)), monotonic()
        await asyncio.shield(self.checking)

    async def close(self) -> None:
        """Write what is pending, then close the store."""
        self._hand_over()
        self.closed = True
        self.handed.put([])
        await asyncio.to_thread(self.thread.join)

    def _submit(self, what: Operation | Callable[[], Any]) -> asyncio.Future[Any]:
        if self.closed:
            raise StoreError("the store is closed")
        future = self.loop.create_future()
        if not self.fresh:
            self.loop.call_soon(self._hand_over)
        self.fresh.append((what, future))
        return future

    def _hand_over(self) -> None:
        if self.fresh:
            self.handed.put(self.fresh)
            self.fresh = []

    def _run(self) -> None:
        waiting: list[Waiting] = []
        ending = False
        while waiting or not ending:
            while not ending and not (waiting and self.handed.empty()):
                more = self.handed.get()
                ending = not more
                waiting += more
            batch, waiting = waiting[:MOST], waiting[MOST:]
            outcome = self._outcome([what for what, _ in batch])
            pairs = list(zip([future for _, future in batch], outcome, strict=True))
            self.loop.call_soon_threadsafe(_settle, pairs)
        self.store.close()

    def _outcome(self, batch: list[Operation | Callable[[], Any]]) -> list[Any]:
        """Results or exceptions of a batch: first the operations, as one transaction, then the reads. If the
        store hangs, the rest of the batch fails with it: one after the other, they would wait for minutes."""
        operations = [what for what in batch if not callable(what)]
        results: list[Any] = []
        hung: Exception | None = None
        if operations:
            applied, hung = _called(lambda: self.store.apply(operations))
            results = [applied] * len(operations) if isinstance(applied, Exception) else applied
            self.batches += 1
            self.operations += len(operations)
        done, outcome = iter(results), []
        for what in batch:
            if not callable(what):
                outcome.append(next(done))
                continue
            result = hung
            if hung is None:
                result, hung = _called(what)
            outcome.append(result)
        return outcome


def _done(result: Any) -> Any:
    if isinstance(result, Conflict):
        raise ConflictError(result)
    return result


def _called(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """The result or the exception, and again the exception if the store did not answer."""
    begin = monotonic()
    try:
        return function(), None
    except Exception as error:  # passed to the waiting callers
        hung = isinstance(error, StoreError) and not isinstance(error, StoreFull)
        return error, error if hung and monotonic() - begin >= HUNG else None


def _settle(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.cancelled():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
