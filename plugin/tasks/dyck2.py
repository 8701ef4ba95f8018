"""Dyck-2: predict after every symbol which bracket may close next (MTS 3.1.2; Suzgun et al. 2019).

    input    ( ) [ ] one-hot, 4 inputs
    target   two numbers per step: 1 for the bracket that may close next, (1,0) round, (0,1) square,
             (0,0) where none is open; mean squared error of two sigmoids

A sequence is correct if all of its outputs are, with a threshold of .5. Splits are drawn from one pool of
unique sequences, so no test sequence is in the training split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.checks import check_least
from ..common.lazy import np
from ..common.rng import permutation
from ..config import setting
from ..data.meta import SPLITS
from .base import Batch, Sums, register_task
from .dyck_grammar import closing_types, unique_sequences
from .rows import FixedTask, tensor, valid_steps

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Dyck2Config:
    """Dyck-2 task"""

    data: str = setting("", "not used: the sequences are generated")
    batch_size: int = setting(128, "sequences per update, over all processes")
    seed: int = setting(1, "seed of the order of the sequences")
    data_seed: int = setting(1, "seed of the sequences")
    dyck_length: int = setting(200, "maximum length of a sequence in symbols")
    dyck_train: int = setting(10_000, "training sequences")
    dyck_valid: int = setting(2_000, "validation sequences")
    dyck_test: int = setting(5_000, "test sequences")


@register_task("dyck2")
class Dyck2Task(FixedTask):
    """Predict which bracket may close next."""

    Config = Dyck2Config
    family = "tagger"
    criterion = "sigmoid_mse"

    def __init__(self, config: Dyck2Config, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        check_least(config, 40, "dyck_length")  # there are too few shorter sequences
        check_least(config, 1, "dyck_train", "dyck_valid", "dyck_test")
        self._numbers = self._split()

    def _split(self) -> dict[str, np.ndarray]:
        """Fills the padded pool; returns the row numbers of each split."""
        total = sum(self.rows(split) for split in SPLITS)
        pool = unique_sequences(total, self.config.dyck_length, self.config.data_seed)
        self._lengths = np.array([len(s) for s in pool])
        width = int(self._lengths.max())
        self._symbols = np.zeros((total, width), dtype=np.uint8)
        self._answers = np.full((total, width), -1, dtype=np.int8)
        self._reach = np.zeros(total, dtype=np.int64)
        for row, sequence in enumerate(pool):
            answer, distance = closing_types(sequence)
            self._symbols[row, : len(sequence)] = sequence
            self._answers[row, : len(sequence)] = answer
            self._reach[row] = distance.max()
        order = permutation(total, self.config.data_seed, "dyck2-split")
        ends = np.cumsum([self.rows(split) for split in SPLITS])
        return dict(zip(SPLITS, np.split(order, ends[:-1]), strict=True))

    def model_arguments(self) -> dict[str, Any]:
        return {"vocab_size": 4, "num_classes": 2, "decoder_embed_dim": 0}

    def rows(self, split: str) -> int:
        return int(getattr(self.config, f"dyck_{split}"))

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        pool = self._numbers[split][rows]
        lengths = self._lengths[pool]
        width = int(lengths.max())
        answers = self._answers[pool, :width]
        target = np.stack([answers == 0, answers == 1], axis=-1).astype(np.float32)
        return Batch(
            x=tensor(self._symbols[pool, :width]),
            target=tensor(target),
            lengths=tensor(lengths),
            weight=tensor(valid_steps(lengths, width).astype(np.float32)),
        )

    def timescales(self, split: str) -> np.ndarray:
        """The largest distance between a bracket and its partner in each row of a split."""
        return self._reach[self._numbers[split]]

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        """Counts sequences with every output correct; sigmoid(z) > .5 means z > 0."""
        right = self.right(logits, batch)
        return {"accuracy": (right.sum(), len(right))}

    def right(self, logits: Tensor, batch: Batch) -> Tensor:
        """bool [B]: which sequences are correct."""
        assert batch.weight is not None
        same = (logits > 0) == (batch.target > 0.5)
        return (same.all(-1) | (batch.weight == 0)).all(-1)

    def summary(self) -> str:
        c = self.config
        return (
            f"Dyck-2: unique sequences of 2 to {c.dyck_length} symbols; {c.dyck_train:,} train, "
            f"{c.dyck_valid:,} valid, {c.dyck_test:,} test, data seed {c.data_seed}"
        )
