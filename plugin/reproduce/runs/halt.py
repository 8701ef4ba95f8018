"""Reasons to end a run early: a signal, the end of the budget, or a goal that is reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ...train.settings import LoopConfig
from ...train.signals import StopRequest


class Goal(NamedTuple):
    """A value that a validation metric should reach."""

    metric: str
    value: float
    maximize: bool

    def reached(self, row: dict[str, Any]) -> bool:
        found = row.get(self.metric)
        if found is None:
            return False
        return found >= self.value if self.maximize else found <= self.value


def goal_of(loop: LoopConfig, value: float | None) -> Goal | None:
    """The goal `value` for the metric that selects the best checkpoint."""
    if value is None:
        return None
    return Goal(loop.best_checkpoint_metric, value, loop.maximize_best_checkpoint_metric)


class Halt(StopRequest):
    """A trainer's stop request that can also come from a deadline, a stop of all runs, or a goal.

    deadline: a time.monotonic(), or None. asked: returns whether all runs should stop.
    """

    BUDGET, GOAL, ASKED = "the end of the budget", "the goal", "a stop of all runs"

    def __init__(
        self,
        deadline: float | None,
        asked: Callable[[], bool] = lambda: False,
        goal: Goal | None = None,
    ) -> None:
        self._signal: str | None = None
        self.deadline, self.asked, self.goal = deadline, asked, goal
        self.goal_reached = False
        super().__init__()

    def look(self, row: dict[str, Any]) -> None:
        """Called with every validation."""
        self.goal_reached = self.goal is not None and self.goal.reached(row)

    @property
    def requested(self) -> str | None:
        if self._signal:
            return self._signal
        if self.goal_reached:
            return self.GOAL
        if self.asked():
            return self.ASKED
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return self.BUDGET
        return None

    @requested.setter
    def requested(self, name: str | None) -> None:
        self._signal = name

    @property
    def politely(self) -> bool:
        """Whether there is time for measurements: the process itself was not asked to stop."""
        return self.requested in (None, self.GOAL, self.BUDGET)
