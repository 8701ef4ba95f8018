"""What a store keeps for a stream, and the operations on it.

A stream's row has a version and an epoch, both taken from one counter in the store that only increases: no
number is used twice, not even for a stream that was removed and created again. A Put names the version and the
epoch that its writer saw (0: no such row) and is refused with a Conflict if another writer has put or claimed
the row since. A Claim takes over a row: it reads the row and gives it a new epoch, so that the previous owner
can no longer write. A row without a model is that of an ended session: it is not listed, and has no history.
A key is USER/NAME; for each user, a store counts the rows with and those without a model.

`apply` does a batch of operations as one transaction, in order. A refused Put changes nothing and does not undo
the others. Once `apply` has returned, its changes are durable if the store is durable; if it raises StoreError,
nothing has changed (Redis: each operation by itself; some may have been done).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class StoreError(OSError):
    """The store cannot be read or written now."""


class StoreFull(StoreError):
    """There is no space left."""


class StoreOfOther(StoreError):
    """The file or database belongs to another program."""


class Row(NamedTuple):
    """A stream as last stored.

    `model` is the name under which the model is served, `fingerprint` its weights, and `level` the instruction
    set that computed the state. `request_id` is that of the last request, and `answer` its answer. `tail` holds
    the last inputs, packed by the writer, from which the state can be rebuilt for other weights.
    """

    position: int
    blob: bytes
    model: str = ""
    fingerprint: str = ""
    level: str = ""
    request_id: str = ""
    answer: bytes = b""
    tail: bytes = b""
    version: int = 0  # this and epoch are set by the store; in a Put they are what its writer saw
    epoch: int = 0


def without_bytes(row: Row) -> Row:
    """What a list of rows shows."""
    return row._replace(blob=b"", request_id="", answer=b"", tail=b"")


class Put(NamedTuple):
    """Store `row` under `key`, if its version and epoch are still those in the store.

    With `history` > 0 the state is also added to the history, which keeps the last `history` states.
    If no further Put follows, the row and its history expire after `seconds`; 0 means never.
    With `most` > 0, a Put that adds a row with a model to its user's, or one without, is refused (Crowded) if
    there are that many of them.
    """

    key: str
    row: Row
    history: int = 0
    seconds: float = 0.0
    most: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Read a row and take it over."""

    key: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a row and its history: if its version and epoch are still those in the store or, without a
    version, whoever holds it."""

    key: str
    version: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Conflict:
    """A Put or Remove was refused; the fields are those of the row in the store, all 0 if there is none."""

    version: int
    epoch: int
    position: int


@dataclass(frozen=True, slots=True)
class Crowded:
    """A Put was refused: its user has so many rows of that kind."""

    rows: int


@dataclass(frozen=True, slots=True)
class Past:
    """A state in the history, without its bytes."""

    version: int
    position: int


Operation = Put | Claim | Remove
# Put: the new version, a Conflict, or Crowded. Claim: the row with its new epoch, or None. Remove: whether it
# was there, or a Conflict.
Result = int | Conflict | Crowded | Row | None | bool


class StateStore(Protocol):
    """Each process and thread has its own; several processes may use the same file or database."""

    durable: bool  # whether stored states outlive the process
    warning: str  # what the operator should check; "" if nothing

    def apply(self, operations: Sequence[Operation]) -> list[Result]: ...
    def read(self, key: str) -> Row | None: ...
    def history(self, key: str) -> list[Past]:
        """The states in the history, oldest first."""
        ...

    def past(self, key: str, version: int) -> Row | None:
        """One state of the history: position, blob, model, fingerprint and level."""
        ...

    def page(self, prefix: str, after: str, most: int) -> list[tuple[str, Row]]:
        """Rows that have a model, whose key starts with the prefix (a user and a slash) and comes after
        `after`; sorted by key, without bytes."""
        ...

    def count(self) -> int:
        """Number of rows, including those that have expired but have not been swept yet."""
        ...

    def ended(self) -> int:
        """How many of these have no model: they keep the last answer of a session that has ended."""
        ...

    def rows_of(self, user: str) -> tuple[int, int]:
        """How many rows of a user have a model, and how many have none; they are counted like those of
        `count`, in a time that does not depend on their number."""
        ...

    def weights(self, after: str) -> tuple[set[tuple[str, str]], str]:
        """The model and the fingerprint of a part of the rows, and where the next part begins; both the first
        part and the end are ""."""
        ...

    def sweep(self) -> bool:
        """Remove expired rows, a part at a time so that writes need not wait long; returns whether there are
        more."""
        ...

    def close(self) -> None: ...
