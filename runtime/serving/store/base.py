"""What a store keeps of a stream, and the operations on it.

A stream's row has a version and an epoch, both from one counter of the store that only grows: no number is
given twice, not even to a stream that was removed and made again. A Put names the version and the epoch that
its writer saw (0: no such row) and is refused with a Conflict where another has written or claimed since.
A Claim takes a row over: it reads it and gives it a new epoch, so that its last owner cannot write any more.

`apply` does a batch of operations as one transaction, in order. A refused Put changes nothing and does not undo
the others. What `apply` returned is durable, if the store is; where it raises StoreError nothing was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol


class StoreError(OSError):
    """The store cannot be read or written now."""


class StoreFull(StoreError):
    """There is no space left."""


class StoreOfOther(ValueError):
    """The file or the database holds something else."""


@dataclass(frozen=True, slots=True)
class Row:
    """A stream as it was last stored.

    `model` is the name under which the model is served, `fingerprint` its weights, `level` the instruction set
    that the state was computed with. `request_id` is that of the last request, `answer` what it was answered.
    `tail` holds the last inputs, packed by the writer: a state under other weights can be rebuilt from them.
    """

    position: int
    blob: bytes
    model: str = ""
    fingerprint: str = ""
    level: str = ""
    request_id: str = ""
    answer: bytes = b""
    tail: bytes = b""
    version: int = 0  # these two are the store's: a Put's are what its writer saw
    epoch: int = 0


def without_bytes(row: Row) -> Row:
    """What a list of rows shows."""
    return replace(row, blob=b"", request_id="", answer=b"", tail=b"")


@dataclass(frozen=True, slots=True)
class Put:
    """Store `row` under `key`, if its version and epoch are still those in the store.

    With `history` > 0 the state is also kept for travel back, beside at most `history` - 1 earlier ones.
    Without a further Put the row and its history are gone after `seconds`; 0: never.
    """

    key: str
    row: Row
    history: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Claim:
    """Read a row and take it over."""

    key: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a row and its history, whoever holds it."""

    key: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A Put that was refused, and what is there: version 0 where nothing is."""

    version: int
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Past:
    """A state of the history, without its bytes."""

    version: int
    position: int


Operation = Put | Claim | Remove
# Put: the new version, or a Conflict. Claim: the row with its new epoch, or None. Remove: whether it was there.
Result = int | Conflict | Row | None | bool


class StateStore(Protocol):
    """One per process and thread; several processes may use the same file or database."""

    durable: bool  # whether what was answered outlives the process
    warning: str  # what its owner should look after; "": nothing

    def apply(self, operations: Sequence[Operation]) -> list[Result]: ...
    def read(self, key: str) -> Row | None: ...
    def history(self, key: str) -> list[Past]:
        """The states kept for travel back, oldest first."""
        ...

    def past(self, key: str, version: int) -> Row | None:
        """One of them: position, blob, model, fingerprint and level."""
        ...

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        """Rows of a model whose key is the prefix and more than `after`, by key; without their bytes."""
        ...

    def count(self) -> int:
        """Rows, with those that are gone but not swept yet."""
        ...

    def sweep(self) -> int:
        """Forget rows that are gone; how many."""
        ...

    def close(self) -> None: ...
