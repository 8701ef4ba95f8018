"""Adding: the sum of two marked numbers (Hochreiter and Schmidhuber 1997; FG figs. 3, 5).

    input    (u_t, mark_t), u_t ~ U(0,1); mark is 1 at one step of the first half and at one of the
             second, else 0 (Arjovsky et al. 2016)
    target   u_i + u_j at the last step, scored by the squared error

Always answering 1 gives an error of 1/6. `right` counts answers off by less than .04, the bound of
the 1997 paper. Every batch is newly generated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.checks import check_least
from ..common.lazy import np
from ..common.rng import uniforms
from ..config import setting
from .base import Batch, Sums, register_task
from .rows import RowTask, tensor

if TYPE_CHECKING:
    from torch import Tensor

CLOSE = 0.04


@dataclass(frozen=True)
class AddingConfig:
    """Adding task"""

    data: str = setting("", "not used: the sequences are generated")
    batch_size: int = setting(64, "sequences per update, over all processes")
    seed: int = setting(1, "not used by the data")
    data_seed: int = setting(1, "seed of the sequences")
    adding_length: int = setting(5000, "steps per sequence")
    adding_updates: int = setting(500, "batches per epoch; data never repeats")
    adding_valid: int = setting(1000, "number of validation sequences, and of test sequences")


@register_task("adding")
class AddingTask(RowTask):
    """Add two numbers that are far apart in the sequence."""

    Config = AddingConfig
    family = "tagger"
    criterion = "mse"

    def __init__(self, config: AddingConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        check_least(config, 2, "adding_length")
        check_least(config, 1, "adding_updates", "adding_valid")

    def model_arguments(self) -> dict[str, Any]:
        return {"input_size": 2, "num_classes": 1}

    def batches(self, split: str) -> int:
        c = self.config
        return c.adding_updates if split == "train" else -(-c.adding_valid // c.batch_size)

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        c, rows = self.config, self.config.batch_size
        if split != "train":  # adding_valid rows, split as evenly as possible
            total, parts = c.adding_valid, self.batches(split)
            rows = total * (index + 1) // parts - total * index // parts
        T, half = c.adding_length, c.adding_length // 2
        draw = uniforms(rows * (T + 2), c.data_seed, f"adding-{split}", epoch, index)
        values, where = draw[: rows * T].reshape(rows, T), draw[rows * T :].reshape(rows, 2)
        first = (where[:, :1] * half).astype(np.int64)
        second = half + (where[:, 1:] * (T - half)).astype(np.int64)
        marked = np.concatenate([first, second], axis=1)
        x = np.zeros((rows, T, 2), dtype=np.float32)
        x[:, :, 0] = values
        np.put_along_axis(x[:, :, 1], marked, 1.0, axis=1)
        target = np.zeros((rows, T, 1), dtype=np.float32)
        target[:, -1, 0] = np.take_along_axis(x[:, :, 0], marked, axis=1).sum(axis=1)
        weight = np.zeros((rows, T), dtype=np.float32)
        weight[:, -1] = 1
        return Batch(tensor(x), tensor(target), weight=tensor(weight))

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        error = logits[:, -1, 0].float() - batch.target[:, -1, 0]
        return {"right": ((error.abs() < CLOSE).sum(), len(error))}

    def summary(self) -> str:
        c = self.config
        return (
            f"adding: length {c.adding_length}, {c.adding_updates:,} new batches per epoch, "
            f"{c.adding_valid:,} valid, {c.adding_valid:,} test, data seed {c.data_seed}"
        )
