"""Why a run ends before its recipe does: a signal, the end of the budget, or a goal that is reached."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..train.signals import StopRequest


class Halt(StopRequest):
    """A trainer's request to stop that also looks at the clock, at its boss, and at a goal.

    deadline: by time.time(), or None. asked: whether all runs are to stop.
    """

    BUDGET, GOAL, ASKED = "the end of the budget", "the goal", "a stop of all runs"

    def __init__(self, deadline: float | None, asked: Callable[[], bool] = lambda: False) -> None:
        self._signal: str | None = None
        self.deadline, self.asked, self.goal_reached = deadline, asked, False
        super().__init__()

    @property
    def requested(self) -> str | None:
        if self._signal:
            return self._signal
        if self.goal_reached:
            return self.GOAL
        if self.asked():
            return self.ASKED
        if self.deadline is not None and time.time() >= self.deadline:
            return self.BUDGET
        return None

    @requested.setter
    def requested(self, name: str | None) -> None:
        self._signal = name

    @property
    def politely(self) -> bool:
        """Whether there is time left to measure: nobody asked the process itself to go."""
        return self.requested in (None, self.GOAL, self.BUDGET)
