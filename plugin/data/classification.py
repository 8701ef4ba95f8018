"""Batches of whole items (reviews) with labels: shuffled by (seed, epoch), truncated to max_length,
padded on the right.

    x[b, t] = item_b[t] for t < lengths[b], else pad_id;   t < T

T is the length of the longest item in the batch, or always fixed_length. Padding is the id len(vocab)
(vocab.py), so the embedding has one row more than the dictionary. With fixed_length a model may run through the
padding, and its output may be read at the last column; `lengths` still says where the words end. A global batch
is split among W ranks in contiguous parts. The position is one number, the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..common.lazy import np
from ..common.rng import check_seed, permutation
from . import batching
from .by_tokens import check_max_tokens, cut_by_tokens
from .corpus import Corpus


@dataclass(frozen=True)
class ClassificationBatch:
    """x: int64 [B, T]. lengths, y and items (their numbers in the corpus): int64 [B]."""

    x: np.ndarray
    lengths: np.ndarray
    y: np.ndarray
    items: np.ndarray
    global_size: int  # items over all ranks, the divisor of the mean loss


class ClassificationBatches:
    """`for batch in batches` runs to the end of the epoch; then call set_epoch(e)."""

    def __init__(
        self,
        corpus: Corpus,
        batch_size: int,
        pad_id: int,
        *,
        max_length: int | None = None,
        fixed_length: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        max_tokens: int | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(
                f"rank is {rank} of world size {world_size}; accepted: 0 to {world_size - 1}"
            )
        if batch_size < 1 or batch_size % world_size:
            raise ValueError(
                f"batch size is {batch_size}; accepted: a multiple of the {world_size} processes"
            )
        for name, value in (("max_length", max_length), ("fixed_length", fixed_length)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; accepted: 1 or more")
        if len(corpus.labels) != corpus.items or not corpus.items:
            raise ValueError(
                f"{corpus.idx_path}: {corpus.items} items, {len(corpus.labels)} labels; "
                "accepted: one label each"
            )
        self.lengths = np.asarray(corpus.lengths(), dtype=np.int64)
        if self.lengths.min() < 1:
            raise ValueError(
                f"{corpus.idx_path}: item {int(np.argmin(self.lengths))} is empty; "
                "accepted: 1 token or more"
            )
        if pad_id < corpus.vocab_size:
            raise ValueError(f"pad_id is {pad_id}, a token; accepted: {corpus.vocab_size} or more")
        self.corpus, self.batch_size, self.pad_id = corpus, batch_size, pad_id
        self.max_length, self.fixed_length = max_length, fixed_length
        self.shuffle, self.seed = shuffle, check_seed(seed)
        self.rank, self.world_size = rank, world_size
        limit = fixed_length if fixed_length is not None else max_length
        self.widths = self.lengths if limit is None else np.minimum(self.lengths, limit)
        if fixed_length is not None:
            self.widths = np.full_like(self.lengths, fixed_length)
        check_max_tokens(max_tokens, int(self.widths.max()), "text")
        self.max_tokens = max_tokens
        self.table: np.ndarray | None = None
        self.set_epoch(0)

    @property
    def finished(self) -> bool:
        """Whether this epoch is over."""
        return self.position >= self.corpus.items

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. Its number and the seed determine the order."""
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}; accepted: 0 or more")
        self.epoch, self.position = epoch, 0
        n = self.corpus.items
        self.order = (
            permutation(n, self.seed, "epoch-order", epoch) if self.shuffle else np.arange(n)
        )
        self.starts = np.arange(0, n, self.batch_size)
        if self.max_tokens is not None:
            self._cut_by_tokens(self.max_tokens)
        self.ends = np.append(self.starts[1:], n)

    def _cut_by_tokens(self, most: int) -> None:
        """Batches of texts of similar length, in random order."""
        parts = cut_by_tokens(self.order, self.widths, most)
        if self.shuffle:
            mixed = permutation(len(parts), self.seed, "batch-order", self.epoch)
            parts = [parts[i] for i in mixed]
        self.order = np.concatenate(parts)
        self.starts = np.cumsum([0, *(len(part) for part in parts[:-1])])

    def go_to(self, index: int) -> None:
        """Go to batch `index` of the epoch."""
        self.position = int(self.starts[index]) if index < len(self.starts) else self.corpus.items

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return len(self.starts)

    def __iter__(self) -> Iterator[ClassificationBatch]:
        while not self.finished:
            yield self.next_batch()

    def next_batch(self) -> ClassificationBatch:
        """The next batch. The position moves past it. The last batch may be smaller, and empty on some
        ranks."""
        if self.finished:
            raise ValueError(
                f"epoch {self.epoch} is over; set_epoch({self.epoch + 1}) starts the next"
            )
        end = int(self.ends[np.searchsorted(self.ends, self.position, side="right")])
        chosen = self.order[self.position : end]
        n, w = len(chosen), self.world_size
        mine = chosen[self.rank * n // w : (self.rank + 1) * n // w]
        self.position += n
        limit = self.fixed_length if self.fixed_length is not None else self.max_length
        lengths = self.lengths[mine] if limit is None else np.minimum(self.lengths[mine], limit)
        width = self.fixed_length if self.fixed_length is not None else int(lengths.max(initial=0))
        x = self._padded(mine, limit, width) if self.table is None else self.table[mine, :width]
        return ClassificationBatch(
            x.astype(np.int64),
            lengths,
            np.asarray(self.corpus.labels[mine], dtype=np.int64),
            mine,
            n,
        )

    def _padded(self, items: np.ndarray, limit: int | None, width: int) -> np.ndarray:
        x = np.full((len(items), width), self.pad_id, dtype=np.int32)
        for row, item in zip(x, items.tolist(), strict=True):
            tokens = self.corpus.item(item, limit)
            row[: len(tokens)] = tokens
        return x

    def keep_in_memory(self) -> None:
        """Makes batches cheap by reading all items into a table, int32 [items, longest], of at most
        KEPT_BYTES."""
        limit = self.fixed_length if self.fixed_length is not None else self.max_length
        width = int(self.lengths.max()) if limit is None else limit
        if 4 * self.corpus.items * width > batching.KEPT_BYTES:
            return
        tokens = self.corpus.read(0, len(self.corpus))
        step = np.arange(len(tokens)) - np.repeat(self.corpus.offsets[:-1], self.lengths)
        self.table = np.full((self.corpus.items, width), self.pad_id, dtype=np.int32)
        there = np.arange(width) < self.lengths[:, None]
        self.table[there] = tokens[step < width]

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "items": self.corpus.items,
            "seed": self.seed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of a state_dict(). Different data or a different seed is an error."""
        for name, here in (("items", self.corpus.items), ("seed", self.seed)):
            if state.get(name) != here:
                raise ValueError(
                    f"data position: {name} is {state.get(name)!r} in the checkpoint and {here} "
                    "here"
                )
        epoch, position = state.get("epoch"), state.get("position")
        if (
            type(epoch) is not int
            or type(position) is not int
            or not 0 <= position <= self.corpus.items
        ):
            raise ValueError(
                f"data position: epoch, position are {epoch!r}, {position!r}; "
                f"accepted: at most {self.corpus.items} items"
            )
        self.set_epoch(epoch)
        self.position = position
