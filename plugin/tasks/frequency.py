"""Frequency discrimination: is the period between 5 and 6? (Neil et al. 2016; PL 5.4, A.2)

    x(t) = sin(2 pi t / T - s)      s ~ U(0, D),  D ~ U(15, 125),  start ~ U(0, 125 - D)

    class 1   T ~ U(5, 6), every second row
    class 0   T outside [5, 6] and in (1, 100): `loguniform`, `uniform` over both intervals together,
              or `halves`: one half from U(1, 5), the other from U(6, 100)

    sync      t = start + 0, 1, 2, ... steps while below start + D (`frequency_step`: 1 or .1)
    async     int(U(15, 125)) times, uniform in (start, start + D), sorted; a time less than 1e-4 after the
              previous one is drawn again, so that dt stays above the eps of a power-law cell (1e-5 by default
              here, see `--eps`)

The input is x, or (x, t) with `frequency_time`; dt is the time since the previous sample. The first
sample's dt is 1, or, with `frequency_first_dt start`, its time since t = 0, at least 1e-4. Times are float64;
only the inputs of the model are rounded. There are two outputs at the last step. Every training epoch has new
data; valid and test stay the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.checks import check_least
from ..common.lazy import np
from ..common.rng import uniforms
from ..config import setting
from .base import Batch, Sums, register_task
from .rows import RowTask, class_accuracy, tensor, valid_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ..cells import Cell

PERIOD = (1.0, 100.0)
TARGET_PERIOD = (5.0, 6.0)
DURATION = (15.0, 125.0)
POINTS = (15, 125)  # the upper end is excluded
MIN_GAP = 1e-4
EPS = 1e-5  # eps of power-law cells, below MIN_GAP
SAMPLINGS = ("sync", "async")
NEGATIVES = ("loguniform", "uniform", "halves")
FIRST_DT = ("one", "start")


@dataclass(frozen=True)
class FrequencyConfig:
    """Frequency discrimination task"""

    data: str = setting("", "not used: the waves are generated")
    batch_size: int = setting(32, "waves per update, over all processes")
    seed: int = setting(1, "not used by the data")
    data_seed: int = setting(1, "seed of the waves")
    frequency_sampling: str = setting(
        "async", "sampling times: evenly spaced, or random", choices=SAMPLINGS
    )
    frequency_step: float = setting(1.0, "time between evenly spaced samples")
    frequency_time: bool = setting(False, "use t as a second input")
    frequency_negatives: str = setting(
        "loguniform", "distribution of the periods outside the target range", choices=NEGATIVES
    )
    frequency_first_dt: str = setting(
        "one", "dt of the first sample: 1, or the time since t = 0", choices=FIRST_DT
    )
    frequency_train: int = setting(5000, "new waves per epoch (rounded up to whole batches)")
    frequency_valid: int = setting(500, "number of validation waves, and of test waves")


@register_task("frequency")
class FrequencyTask(RowTask):
    """Distinguish sine waves with periods in one range from all others."""

    Config = FrequencyConfig
    family = "classifier"

    def __init__(self, config: FrequencyConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        check_least(config, 1, "frequency_train", "frequency_valid")
        if not 0.01 <= config.frequency_step <= DURATION[0]:
            raise ValueError(
                f"frequency_step is {config.frequency_step}; accepted: .01 to {DURATION[0]:g}"
            )
        for name, known in (
            ("frequency_sampling", SAMPLINGS),
            ("frequency_negatives", NEGATIVES),
            ("frequency_first_dt", FIRST_DT),
        ):
            if getattr(config, name) not in known:
                raise ValueError(
                    f"{name} is {getattr(config, name)!r}; accepted: {', '.join(known)}"
                )

    def model_arguments(self) -> dict[str, Any]:
        return {"input_size": 2 if self.config.frequency_time else 1, "num_classes": 2}

    def model_wishes(self, cell: type[Cell]) -> dict[str, Any]:
        return {"eps": EPS} if "eps" in cell.constants else {}

    def takes_dt(self) -> bool:
        return True

    def batches(self, split: str) -> int:
        c = self.config
        rows = c.frequency_train if split == "train" else c.frequency_valid
        return -(-rows // c.batch_size)

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        c = self.config
        low, high = 0, c.batch_size
        if split != "train":
            total, parts = c.frequency_valid, self.batches(split)
            low, high = total * index // parts, total * (index + 1) // parts
        purpose = f"frequency-{split}"
        draw = uniforms(5 * (high - low), c.data_seed, purpose, epoch, index).reshape(5, -1)
        labels = 1 - np.arange(low, high) % 2
        period = np.where(labels == 1, self._between(draw[0], TARGET_PERIOD), self._other(draw[0]))
        duration = self._between(draw[1], DURATION)
        start = draw[2] * (DURATION[1] - duration)
        shift = draw[3] * duration
        if c.frequency_sampling == "sync":
            lengths = np.ceil(duration / c.frequency_step).astype(np.int64)
            times = start[:, None] + np.arange(lengths.max()) * c.frequency_step
        else:
            lengths = self._between(draw[4], POINTS).astype(np.int64)
            times = random_times(start, duration, lengths, c.data_seed, purpose, epoch, index)
        return self._pack(times, lengths, period, shift, labels)

    @staticmethod
    def _between(u: np.ndarray, ends: tuple[float, float]) -> np.ndarray:
        return ends[0] + u * (ends[1] - ends[0])

    def _other(self, u: np.ndarray) -> np.ndarray:
        """Maps u to periods outside TARGET_PERIOD. u in [0, 1) covers both intervals joined together; with
        `halves`, each half of [0, 1) covers one of them."""
        ends = np.array([PERIOD[0], *TARGET_PERIOD, PERIOD[1]])
        if self.config.frequency_negatives == "halves":
            return np.interp(u, (0, 0.5, 0.5, 1), ends)
        log = self.config.frequency_negatives == "loguniform"
        a, b, c, d = np.log(ends) if log else ends
        along = a + u * ((b - a) + (d - c))
        along = np.where(along < b, along, along + (c - b))
        return np.exp(along) if log else along

    def _pack(
        self,
        times: np.ndarray,
        lengths: np.ndarray,
        period: np.ndarray,
        shift: np.ndarray,
        labels: np.ndarray,
    ) -> Batch:
        there = valid_steps(lengths, times.shape[1])
        wave = np.sin(2 * math.pi * times / period[:, None] - shift[:, None])
        channels = [wave, times] if self.config.frequency_time else [wave]
        x = np.stack([np.where(there, channel, 0) for channel in channels], axis=-1)
        dt = np.ones_like(times)  # also at padding
        if self.config.frequency_sampling == "sync":
            dt[:, 1:] = self.config.frequency_step
        else:
            dt[:, 1:] = np.where(there[:, 1:], np.diff(times, axis=1), 1)
        if self.config.frequency_first_dt == "start":
            dt[:, 0] = np.maximum(times[:, 0], MIN_GAP)
        return Batch(x=tensor(x), target=tensor(labels), lengths=tensor(lengths), dt=tensor(dt))

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        return class_accuracy(logits, batch.target)

    def summary(self) -> str:
        c = self.config
        how = f"step {c.frequency_step:g}" if c.frequency_sampling == "sync" else "asynchronous"
        return (
            f"frequency discrimination: {how}, {'(x, t)' if c.frequency_time else 'x'} in, "
            f"{c.frequency_negatives} negatives; {c.frequency_train:,} new train per epoch, "
            f"{c.frequency_valid:,} valid, {c.frequency_valid:,} test, data seed {c.data_seed}"
        )


def random_times(
    start: np.ndarray,
    duration: np.ndarray,
    lengths: np.ndarray,
    seed: int,
    purpose: str,
    epoch: int,
    index: int,
) -> np.ndarray:
    """Sorted times float64 [B, max length], at least MIN_GAP apart; 0 after the end of a row."""
    shape = (len(lengths), int(lengths.max()))
    there = valid_steps(lengths, shape[1])
    times = np.full(shape, np.inf)  # padding sorts to the end
    again = there
    attempt = 0
    while again.any():
        draw = uniforms(there.size, seed, f"{purpose}-times-{attempt}", epoch, index).reshape(shape)
        times = np.where(again, start[:, None] + draw * duration[:, None], times)
        times.sort(axis=1)
        known = np.where(there, times, 0)
        again = np.zeros(shape, dtype=bool)
        again[:, 1:] = (np.diff(known, axis=1) < MIN_GAP) & there[:, 1:]
        attempt += 1
    return known
