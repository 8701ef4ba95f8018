"""The progress of training. Together with the state of the model, optimizer, schedule and random generators,
this is everything needed to resume."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Meter:
    """The sum of losses, the count to divide it by, and the number of steps, since the meter was created."""

    loss: float = 0.0
    count: float = 0.0
    steps: float = 0.0

    def add(self, loss: float, count: float, steps: float) -> None:
        self.loss, self.count, self.steps = self.loss + loss, self.count + count, self.steps + steps

    @property
    def mean(self) -> float:
        return self.loss / self.count if self.count else 0.0


@dataclass
class Trend:
    """first: the loss of update 1, if this process did it. recent: a mean of about the last ten."""

    first: float | None = None
    recent: float | None = None

    def add(self, update: int, loss: float) -> None:
        if update == 1:
            self.first = loss
        self.recent = loss if self.recent is None else 0.9 * self.recent + 0.1 * loss


@dataclass
class TrainState:
    """epoch: counted from 1. index: finished batches of the epoch. update: updates since the start.

    validated: the update of the last scheduled validation. stale: validations since the best one.
    """

    epoch: int = 1
    index: int = 0
    update: int = 0
    validated: int = 0
    best: float | None = None
    best_update: int = 0
    best_values: dict[str, float] = field(default_factory=dict)
    stale: int = 0
    seconds: float = 0.0
    steps: float = 0.0
    epoch_meter: Meter = field(default_factory=Meter)
    interval_meter: Meter = field(default_factory=Meter)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainState:
        values = dict(values)
        for name in ("epoch_meter", "interval_meter"):
            values[name] = Meter(**values[name])
        return cls(**values)

    def next_epoch(self) -> None:
        self.epoch, self.index = self.epoch + 1, 0
        self.epoch_meter = Meter()

    def judge(self, value: float, maximize: bool, values: dict[str, float]) -> bool:
        """Whether this is the best value so far (NaN never is); if so, stores it."""
        if math.isnan(value):
            return False
        better = self.best is None or (value > self.best if maximize else value < self.best)
        if better:
            self.best, self.best_update, self.best_values = value, self.update, dict(values)
        return better

    def forget_best(self) -> None:
        """Makes the next validation the best so far, whatever came before."""
        self.best, self.best_update, self.best_values, self.stale = None, 0, {}, 0
