"""The base of the papers' small tasks: a batch is a pure function of (seed, split, epoch, index).

A task defines how many batches a split has and what batch i is. This class iterates over them from any start at
no cost, and splits them among processes. Rank r of W takes rows r B / W to (r + 1) B / W - 1 of the global
batch of B rows, so the concatenated batches of all ranks equal the batch of a single process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..common.checks import check_least
from ..common.lazy import np
from ..common.rng import check_seed, permutation
from .base import Batch, Sums, Task
from .transfer import to_device

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class RowTask(Task):
    """A task defined by `batches(split)` and `batch(split, epoch, index)`."""

    def __init__(self, config: Any, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        if not 0 <= rank < world:
            raise ValueError(f"rank is {rank} of {world} processes; accepted: 0 to {world - 1}")
        check_least(config, 1, "batch_size")
        if config.batch_size < world:
            raise ValueError(
                f"batch_size is {config.batch_size} for {world} processes; accepted: {world} or "
                "more, a row for each"
            )
        check_seed(config.seed)
        check_seed(getattr(config, "data_seed", 0))

    def batches(self, split: str) -> int:
        """How many batches a split has (per epoch, if the data is generated anew)."""
        raise NotImplementedError

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        """The global batch; epoch is 0 unless split is "train"."""
        raise NotImplementedError

    def batches_per_epoch(self, epoch: int) -> int:
        return self.batches("train")

    def train_batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        if epoch < 1 or start < 0:
            raise ValueError(
                f"epoch is {epoch} and start {start}; accepted: 1 or more and 0 or more"
            )
        for index in range(start, self.batches("train")):
            yield self._share(self.batch("train", epoch, index))

    def eval_batches(self, split: str) -> Iterator[Batch]:
        if split not in ("valid", "test"):
            raise ValueError(f"split is {split!r}; accepted: valid, test")
        for index in range(self.batches(split)):
            yield self._share(self.batch(split, 0, index))

    def _share(self, batch: Batch) -> Batch:
        """This rank's rows; there may be none if a batch has fewer rows than there are processes."""
        from torch import Tensor

        rows = len(batch.x)
        mine = slice(rows * self.rank // self.world, rows * (self.rank + 1) // self.world)
        values: dict[str, Any] = {f.name: getattr(batch, f.name) for f in fields(batch)}
        for name, value in values.items():
            if isinstance(value, Tensor):
                values[name] = value[mine]
        return Batch(**values)


class FixedTask(RowTask):
    """A task with fixed sets: every epoch goes through all rows once, in a new order.

    N rows make ceil(N / batch_size) batches whose sizes differ by at most one (100,000 rows in batches of 128:
    782 updates of 127 or 128), so no update has only a few leftover rows.
    """

    def __init__(self, config: Any, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def rows(self, split: str) -> int:
        """How many rows a split has."""
        raise NotImplementedError

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        """The batch of the rows with these indices."""
        raise NotImplementedError

    def batches(self, split: str) -> int:
        return -(-self.rows(split) // self.config.batch_size)

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        total, parts = self.rows(split), self.batches(split)
        low, high = total * index // parts, total * (index + 1) // parts
        if split == "train":
            return self.gather(split, self._order(epoch)[low:high])
        return self.gather(split, np.arange(low, high))

    def _shuffled(self, epoch: int) -> np.ndarray:
        return permutation(self.rows("train"), self.config.seed, f"{self.name}-order", epoch)


def class_accuracy(logits: Tensor, target: Tensor) -> Sums:
    """Counts rows whose largest output is the right class: logits [B,C], target [B]."""
    return {"accuracy": ((logits.argmax(-1) == target).sum(), len(target))}


def valid_steps(lengths: np.ndarray, width: int) -> np.ndarray:
    """bool [B,T]: which steps of right-padded rows are not padding."""
    return np.arange(width) < lengths[:, None]


def put(array: np.ndarray, device: torch.device) -> Tensor:
    """tensor(array) on a device, without synchronising."""
    return to_device(tensor(array), device)


def tensor(array: np.ndarray) -> Tensor:
    """A tensor that owns its memory, int64 or float32."""
    import torch

    kind = torch.int64 if array.dtype.kind in "iub" else torch.float32
    return torch.from_numpy(np.ascontiguousarray(array)).to(kind)
