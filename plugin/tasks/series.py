"""The user's own sequences of numbers, with or without the time between steps.

    series         one target per sequence, read at its last step (a classifier)
    series_steps   one target per step (a tagger)

A target is a class (cross-entropy, accuracy) or numbers (mean squared error). `data` is a folder that
tsm-preprocess wrote from .csv or .npz files. dt is passed to cells that take it. If the shortest dt of the data
is below the eps of a power-law cell, that dt becomes the eps, unless `--eps` is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.lazy import np
from ..common.rng import permutation
from ..config import setting
from ..data.by_tokens import check_max_tokens, cut_by_tokens
from ..data.data_dir import DataDir
from ..data.labels import COLUMNS, LABELS, TARGETS, dump_labels
from ..data.ranges import RANGES, Ranges
from ..data.roles import ROLES, dump_roles
from .arrangement import Arrangement
from .base import Batch, Names, Sums, check_splits, register_task
from .rows import FixedTask, class_accuracy, put, valid_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ..cells import Cell


@dataclass(frozen=True)
class SeriesConfig:
    """Sequences of numbers"""

    data: str = setting("", "folder written by tsm-preprocess from sequences of numbers")
    batch_size: int = setting(32, "sequences per update, over all processes")
    max_tokens: int | None = setting(
        None,
        "instead of --batch-size: steps per update, including padding; sequences of similar length are grouped",
    )
    seed: int = setting(1, "seed of the order of the sequences")


@register_task("series")
class SeriesTask(FixedTask):
    """Predict a class or numbers for a sequence of numbers."""

    Config = SeriesConfig
    family = "classifier"

    def __init__(self, config: SeriesConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        if not config.data:
            raise ValueError(
                f"--task {self.name} needs a data folder; make one with: tsm-preprocess --trainpref "
                "FILE.csv --sequence-column NAME --label-column NAME --split 0.8,0.1,0.1 --destdir DIR"
            )
        folder = DataDir(Path(config.data))
        self.meta = folder.meta
        if self.meta.task != self.name:
            raise ValueError(
                f"{config.data} was preprocessed for {self.meta.task}; accepted: --task {self.meta.task}"
            )
        self.splits = {split: folder.series(split) for split in self.meta.splits}
        first = next(iter(self.splits.values()))  # train, or one that is only evaluated
        self.shape = first.shape
        self._arrangement = Arrangement()
        # Of the current epoch, and of the first, to count batches.
        self._parts = lru_cache(maxsize=2)(self._cut)
        if not self.shape.classes:
            self.criterion = "mse"  # type: ignore[misc]

    def check_trainable(self) -> None:
        check_splits(self.config.data, self.splits)

    def model_arguments(self) -> dict[str, Any]:
        return {"input_size": self.shape.width, "num_classes": self.shape.outputs}

    def model_wishes(self, cell: type[Cell]) -> dict[str, Any]:
        shortest = self.shape.shortest_dt
        return {"eps": shortest} if shortest < cell.constants.get("eps", 0.0) else {}

    def takes_dt(self) -> bool:
        return self.shape.dt

    def rows(self, split: str) -> int:
        if split not in self.splits:
            raise ValueError(f"split is {split!r}; {self.config.data} has {', '.join(self.splits)}")
        return len(self.splits[split])

    def batches(self, split: str) -> int:
        by_tokens = split == "train" and self.config.max_tokens is not None
        return len(self._parts(1)) if by_tokens else super().batches(split)

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        if split == "train" and self.config.max_tokens is not None:
            return self.gather(split, self._parts(epoch)[index])
        return super().batch(split, epoch, index)

    def _cut(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch, cut by --max-tokens, in random order."""
        lengths, most = np.diff(self.splits["train"].offsets), self.config.max_tokens
        check_max_tokens(most, int(lengths.max()), "sequence")
        parts = cut_by_tokens(self._order(epoch), lengths, most)
        mixed = permutation(len(parts), self.config.seed, f"{self.name}-batch-order", epoch)
        return [parts[i] for i in mixed]

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        found = self._arrangement(self.splits[split].gather(rows), self.config.data)
        x, target, lengths = (put(a, self.device) for a in (found.x, found.target, found.lengths))
        dt = None if found.dt is None else put(found.dt, self.device)
        weight = None
        if self.shape.per_step:
            there = valid_steps(found.lengths, found.x.shape[1])
            weight = put(there.astype(np.float32), self.device)
        return Batch(x, target, lengths=lengths, dt=dt, weight=weight)

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        if not self.shape.classes:
            return {}
        if batch.weight is None:
            return class_accuracy(logits, batch.target)
        right = (logits.argmax(-1) == batch.target) * batch.weight
        return {"accuracy": (right.sum(), batch.weight.sum())}

    def arrange_for(self, model: Names) -> None:
        self._arrangement = Arrangement.of(self.config.data, self.meta, self.shape, model)

    def assets(self) -> dict[str, bytes]:
        """The names of the values, if they have any, their ranges, the roles of other columns, and the names of
        the classes or numbers, if they have any."""
        columns = self.shape.columns
        found = {COLUMNS: dump_labels(columns)} if columns else {}
        if self.shape.ranges:
            found[RANGES] = Ranges.of(self.shape.ranges, self.shape.width, "ranges").dump()
        if self.shape.roles:
            found[ROLES] = dump_roles(self.shape.roles)
        if self.meta.labels:
            found[LABELS] = dump_labels(self.meta.labels)
        if self.shape.targets:
            found[TARGETS] = dump_labels(self.shape.targets)
        return found

    def summary(self) -> str:
        s = self.shape
        sizes = ", ".join(f"{len(split):,} {name}" for name, split in self.splits.items())
        what = f"{s.outputs} classes" if s.classes else f"{s.outputs} numbers"
        each = "step" if s.per_step else "sequence"
        return (
            f"{Path(self.config.data).name}: {sizes} sequences of {s.width} values"
            f"{' with dt' if s.dt else ''}; {what} per {each}"
        )


@register_task("series_steps")
class SeriesStepsTask(SeriesTask):
    """Predict a class or numbers for every step of a sequence of numbers."""

    family = "tagger"
