"""Copy memory: repeat n symbols after T steps (Hochreiter and Schmidhuber 1997; PL 4.1, A.3).

    input    a_1 .. a_n   T dummies        signal   n - 1 dummies       (length T + 2n)
    target   n + T dummies                 a_1 .. a_n

a_i uniform over m symbols 0..m-1; the dummy is m, the signal m + 1, one-hot: m + 2 inputs and
m + 2 classes. Cross-entropy is computed over all steps, accuracy over the last n. With `copy_length_max` T is
drawn uniformly from copy_length..copy_length_max for each sequence, and rows are padded on the right. The
training sequences are a fixed set (100,000 in the paper), or, with `copy_fresh`, are new in every epoch.
Guessing after the signal gives an accuracy of 1/m and a loss of n ln(m) / (T + 2n).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..common.checks import check_least, check_most
from ..common.lazy import np
from ..common.rng import uniforms
from ..config import setting
from ..data.meta import SPLITS
from .base import Batch, Sums, register_task
from .rows import FixedTask, put

if TYPE_CHECKING:
    from torch import Tensor

MOST = 1 << 30  # of the steps and symbols of a sequence, which are int32


@dataclass(frozen=True)
class CopyConfig:
    """Copy memory task"""

    data: str = setting("", "not used: the sequences are generated")
    batch_size: int = setting(128, "sequences per update, over all processes")
    seed: int = setting(1, "seed of the order of the sequences")
    data_seed: int = setting(1, "seed of the sequences")
    copy_length: int = setting(200, "number of steps T to remember; the smallest T if it varies")
    copy_length_max: int = setting(0, "largest T, if it varies; 0: T is fixed")
    copy_symbols: int = setting(8, "m, the number of different symbols")
    copy_items: int = setting(10, "n, the number of symbols to remember")
    copy_train: int = setting(100_000, "training sequences")
    copy_fresh: bool = setting(False, "draw new training sequences in every epoch")
    copy_valid: int = setting(10_000, "number of validation sequences, and of test sequences")


@register_task("copy")
class CopyTask(FixedTask):
    """Remember n symbols for T steps."""

    Config = CopyConfig
    family = "tagger"

    def __init__(self, config: CopyConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        check_least(config, 1, "copy_length", "copy_items", "copy_train", "copy_valid")
        check_least(config, 2, "copy_symbols")
        check_most(config, MOST, "copy_length", "copy_length_max", "copy_symbols")
        if config.copy_length_max and config.copy_length_max < config.copy_length:
            raise ValueError(
                f"copy_length_max is {config.copy_length_max}; accepted: 0 (fixed) or at least "
                f"copy_length, {config.copy_length}"
            )
        self._sets = {split: self._draw(split) for split in SPLITS}
        self._fresh = lru_cache(maxsize=1)(lambda epoch: self._draw("train", epoch))

    def _draw(self, split: str, epoch: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Symbols [N,n], and T [N]."""
        c, rows = self.config, self.rows(split)
        draw = uniforms(rows * c.copy_items, c.data_seed, f"copy-symbols-{split}", epoch)
        symbols = (draw * c.copy_symbols).astype(np.int32).reshape(rows, c.copy_items)
        spread = max(c.copy_length_max - c.copy_length, 0) + 1
        draw = uniforms(rows, c.data_seed, f"copy-waits-{split}", epoch)
        return symbols, c.copy_length + (draw * spread).astype(np.int32)

    @property
    def variable(self) -> bool:
        return self.config.copy_length_max > self.config.copy_length

    def model_arguments(self) -> dict[str, Any]:
        classes = self.config.copy_symbols + 2
        return {"vocab_size": classes, "num_classes": classes, "decoder_embed_dim": 0}

    def rows(self, split: str) -> int:
        return int(self.config.copy_train if split == "train" else self.config.copy_valid)

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        if split != "train" or not self.config.copy_fresh:
            return super().batch(split, epoch, index)
        total, parts = self.rows(split), self.batches(split)
        rows = slice(total * index // parts, total * (index + 1) // parts)
        symbols, waits = self._fresh(epoch)
        return self._pack(symbols[rows], waits[rows])

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        symbols, waits = self._sets[split]
        return self._pack(symbols[rows], waits[rows])

    def _pack(self, symbols: np.ndarray, waits: np.ndarray) -> Batch:
        import torch

        n, dummy, signal = (
            self.config.copy_items,
            self.config.copy_symbols,
            self.config.copy_symbols + 1,
        )
        lengths = waits + 2 * n
        width = int(lengths.max())
        items = put(symbols, self.device)
        x = torch.full((len(symbols), width), dummy, device=self.device)
        target = x.clone()
        x[:, :n] = items
        if not self.variable:
            x[:, width - n] = signal
            target[:, width - n :] = items
            return Batch(x, target)
        at = put((n + waits)[:, None], self.device)
        x.scatter_(1, at, signal)
        target.scatter_(1, at + torch.arange(n, device=self.device), items)
        steps = put(lengths, self.device)
        there = torch.arange(width, device=self.device) < steps[:, None]
        return Batch(x, target, lengths=steps, weight=there.float())

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        """The share of the last n symbols that are correct."""
        right = logits.argmax(-1) == batch.target
        recall = batch.target < self.config.copy_symbols  # exactly the n steps to repeat
        return {"accuracy": ((right & recall).sum(), recall.sum())}

    def summary(self) -> str:
        c = self.config
        span = f"{c.copy_length} to {c.copy_length_max}" if self.variable else f"{c.copy_length}"
        fresh = " fresh" if c.copy_fresh else ""
        return (
            f"copy memory: {c.copy_items} of {c.copy_symbols} symbols over T = {span}; "
            f"{c.copy_train:,}{fresh} train, {c.copy_valid:,} valid, {c.copy_valid:,} test, "
            f"data seed {c.data_seed}"
        )
