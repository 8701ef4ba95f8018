"""Learning-rate schedules by name. Each is a factor applied to the optimizer's `--lr`:

    fixed                 1
    reduce_lr_on_plateau  lr_shrink^k, k = plateaus so far (> lr_patience validations without a better loss)
    cosine                from 1 down to min_lr / lr over the whole run
    inverse_sqrt          sqrt(warmup / update)

Each is multiplied by a linear warm-up, update / warmup_updates, while that is below 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ..config import setting
from ..registry import Registry


@dataclass(frozen=True)
class ScheduleConfig:
    """learning rate"""

    warmup_updates: int = setting(0, "updates over which the learning rate rises from 0")

    def __post_init__(self) -> None:
        if self.warmup_updates < 0:
            raise ValueError(f"warmup_updates is {self.warmup_updates}; accepted: 0 or more")


class Schedule:
    """factor(update) for updates 1, 2, ... A schedule is a subclass with a `Config`, registered with
    `register_lr_scheduler`.

    base: the optimizer's learning rate. total: updates of the whole run, if that is known.
    """

    name: ClassVar[str] = ""
    Config: ClassVar[type] = ScheduleConfig

    def __init__(self, config: Any, base: float, total: int | None = None) -> None:
        self.config, self.base, self.total = config, base, total

    def factor(self, update: int) -> float:
        """The factor by which the learning rate is multiplied in this update."""
        warmup = self.config.warmup_updates
        return self.shape(update) * (update / warmup if update < warmup else 1.0)

    def shape(self, update: int) -> float:
        """The factor without the warm-up."""
        return 1.0

    def on_validation(self, loss: float) -> None:
        """Called after every scheduled validation."""

    def state_dict(self) -> dict[str, Any]:
        """The state that a resumed run needs besides the number of updates."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse."""


LR_SCHEDULERS: Registry[type[Schedule]] = Registry("lr scheduler")


def register_lr_scheduler(name: str) -> Callable[[type[Schedule]], type[Schedule]]:
    """Class decorator: registers a Schedule as `name`."""

    def enter(cls: type[Schedule]) -> type[Schedule]:
        cls.name = name
        return LR_SCHEDULERS.register(name)(cls)

    return enter


@register_lr_scheduler("fixed")
class Fixed(Schedule):
    """Constant."""


@dataclass(frozen=True)
class PlateauConfig(ScheduleConfig):
    """learning rate (reduce_lr_on_plateau)"""

    lr_shrink: float = setting(0.1, "factor of the learning rate at each plateau")
    lr_patience: int = setting(0, "number of validations without a better loss that are tolerated")
    lr_threshold: float = setting(
        1e-4, "minimum relative improvement for a loss to count as better"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.lr_shrink < 1 or self.lr_patience < 0:
            raise ValueError(
                f"lr_shrink is {self.lr_shrink}, lr_patience {self.lr_patience}; accepted: between "
                "0 and 1, and 0 or more"
            )
        if not 0 <= self.lr_threshold < 1:
            raise ValueError(f"lr_threshold is {self.lr_threshold}; accepted: 0 or more, below 1")


@register_lr_scheduler("reduce_lr_on_plateau")
class ReduceOnPlateau(Schedule):
    """Reduces the learning rate whenever validation stops improving."""

    Config = PlateauConfig

    def __init__(self, config: Any, base: float, total: int | None = None) -> None:
        super().__init__(config, base, total)
        self.best, self.bad, self.plateaus = math.inf, 0, 0

    def shape(self, update: int) -> float:
        return float(self.config.lr_shrink**self.plateaus)

    def on_validation(self, loss: float) -> None:
        if loss < self.best * (1 - self.config.lr_threshold):
            self.best, self.bad = loss, 0
            return
        self.bad += 1
        if self.bad > self.config.lr_patience:
            self.plateaus, self.bad = self.plateaus + 1, 0

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "bad": self.bad, "plateaus": self.plateaus}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        counts = state["bad"], state["plateaus"]
        best = state["best"]
        if not all(type(n) is int and 0 <= n < 2**31 for n in counts) or type(best) is not float:
            raise ValueError(
                f"train_state.scheduler: best is {best!r}, bad and plateaus {counts}; accepted: a "
                "number, and integers"
            )
        if math.isnan(best):
            raise ValueError("train_state.scheduler: best is nan; accepted: a number")
        self.best, (self.bad, self.plateaus) = best, counts


@dataclass(frozen=True)
class CosineConfig(ScheduleConfig):
    """learning rate (cosine)"""

    min_lr: float = setting(0.0, "learning rate at the end")
    lr_period_updates: int = setting(0, "updates until then; 0: the whole run")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lr_period_updates < 0:
            raise ValueError(f"lr_period_updates is {self.lr_period_updates}; accepted: 0 or more")


@register_lr_scheduler("cosine")
class Cosine(Schedule):
    """Half a cosine from the end of the warm-up to the end of training."""

    Config = CosineConfig

    def __init__(self, config: Any, base: float, total: int | None = None) -> None:
        super().__init__(config, base, total)
        self.period = config.lr_period_updates or total
        if not self.period:
            raise ValueError(
                "lr_period_updates is 0 and neither max_update nor max_epoch says how long the "
                "training is; accepted: one of the three"
            )
        if not 0 <= config.min_lr <= base:
            raise ValueError(f"min_lr is {config.min_lr}; accepted: 0 to lr, {base}")

    def shape(self, update: int) -> float:
        warmup = self.config.warmup_updates
        share = min(max(update - warmup, 0) / max(self.period - warmup, 1), 1.0)
        low = self.config.min_lr / self.base if self.base else 0.0
        return low + (1 - low) * (1 + math.cos(math.pi * share)) / 2


@dataclass(frozen=True)
class InverseSqrtConfig(ScheduleConfig):
    """learning rate (inverse_sqrt)"""

    warmup_updates: int = setting(4000, "updates over which the learning rate rises from 0")


@register_lr_scheduler("inverse_sqrt")
class InverseSqrt(Schedule):
    """Falls like 1 / sqrt(update) after the warm-up."""

    Config = InverseSqrtConfig

    def shape(self, update: int) -> float:
        warmup = max(self.config.warmup_updates, 1)
        return math.sqrt(warmup / update) if update > warmup else 1.0
