"""A store on its own thread, for asyncio: operations that arrive while a batch is written form the next batch.

So the number of transactions depends on the disk, not on the number of clients. An operation that was awaited
without an error is durable, if the store is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from .base import Claim, Conflict, Operation, Put, Remove, Row, StateStore, StoreError

T = TypeVar("T")
MOST = 512  # operations of one transaction


class ConflictError(Exception):
    """A Put was refused: another writer came first."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(f"another writer stored version {conflict.version}")
        self.conflict = conflict


class Commits:
    """The store; `await` its operations in the event loop that created this object."""

    def __init__(self, store: StateStore) -> None:
        self.store, self.loop = store, asyncio.get_running_loop()
        self.waiting: deque[tuple[Operation | Callable[[], Any], asyncio.Future[Any]]] = deque()
        self.change = threading.Condition()
        self.closed = False
        self.batches = self.operations = 0
        self.thread = threading.Thread(target=self._run, name="tsm-store", daemon=True)
        self.thread.start()

    async def put(self, put: Put) -> int:
        """The new version; raises ConflictError."""
        result = await self._submit(put)
        if isinstance(result, Conflict):
            raise ConflictError(result)
        return int(result)

    async def claim(self, key: str) -> Row | None:
        row: Row | None = await self._submit(Claim(key))
        return row

    async def remove(self, key: str) -> bool:
        return bool(await self._submit(Remove(key)))

    async def call(self, function: Callable[[StateStore], T]) -> T:
        """Runs a function that reads the store, on the store's thread."""
        result: T = await self._submit(lambda: function(self.store))
        return result

    async def close(self) -> None:
        """Write what is pending, then close the store."""
        with self.change:
            self.closed = True
            self.change.notify()
        await asyncio.to_thread(self.thread.join)

    @property
    def depth(self) -> int:
        return len(self.waiting)

    def _submit(self, what: Operation | Callable[[], Any]) -> asyncio.Future[Any]:
        future = self.loop.create_future()
        with self.change:
            if self.closed:
                raise StoreError("the store is closed")
            self.waiting.append((what, future))
            self.change.notify()
        return future

    def _run(self) -> None:
        while True:
            with self.change:
                self.change.wait_for(lambda: self.waiting or self.closed)
                if not self.waiting:
                    break
                batch = [self.waiting.popleft() for _ in range(min(MOST, len(self.waiting)))]
            outcome = self._outcome([what for what, _ in batch])
            pairs = list(zip([future for _, future in batch], outcome, strict=True))
            self.loop.call_soon_threadsafe(_settle, pairs)
        self.store.close()

    def _outcome(self, batch: list[Operation | Callable[[], Any]]) -> list[Any]:
        """Results or exceptions of a batch: first the operations, as one transaction, then the reads."""
        operations = [what for what in batch if not callable(what)]
        results: list[Any] = []
        if operations:
            try:
                results = self.store.apply(operations)
            except Exception as error:  # passed to every waiting caller
                results = [error] * len(operations)
            self.batches += 1
            self.operations += len(operations)
        done = iter(results)
        return [_called(what) if callable(what) else next(done) for what in batch]


def _called(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # passed to the waiting caller
        return error


def _settle(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.cancelled():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
