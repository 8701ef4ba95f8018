"""What a rule says of a claim, and what all rules need to say it (comparisons.py, limits.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from .quantities import Quantity
from .recipe import EXPERIMENTS, Metric, Variant
from .rows import span
from .store import Store, Summary

SEEDS = 3  # with fewer seeds a rule stays open
OPEN, HOLDS, FAILS, SAME = "open", "holds", "fails", "no difference"
TOO_FEW = "too few seeds"


@dataclass(frozen=True)
class Judged:
    """OPEN, HOLDS, FAILS or SAME, with a phrase that says why. remarks: what was measured, and how. runs: from
    which this follows. begun: whether there are runs that it cannot follow from, e.g. of only one side. limit:
    if no difference was found, how large it may still be."""

    state: str
    phrase: str
    remarks: str = ""
    runs: tuple[Summary, ...] = field(default=(), compare=False)
    begun: bool = field(default=False, compare=False)
    limit: str = ""

    def with_state(self, state: str, words: str = "", limit: str = "") -> Judged:
        """words: the reason, after the phrase."""
        return replace(
            self, state=state, phrase=self.phrase + f", {words}" * bool(words), limit=limit
        )


class Rule(Protocol):
    """home: the experiment to which the page links. seeds: with fewer the rule stays open."""

    @property
    def home(self) -> str: ...

    @property
    def seeds(self) -> int: ...

    def __call__(self, store: Store) -> Judged: ...


def what_of(home: str, key: str | Quantity) -> Metric | Quantity:
    """A quantity, the metric with this key, or for "" the table's first column."""
    if isinstance(key, Quantity):
        return key
    metrics = EXPERIMENTS.get(home).metrics
    for metric in metrics:
        if metric.key == (key or metrics[0].key):
            return metric
    raise ValueError(f"experiment {home!r} has no metric {key!r}")


def variant_of(home: str, name: str) -> Variant:
    return EXPERIMENTS.get(home).variant(name)


def short(runs: Sequence[Summary]) -> str:
    """Remarks if runs were shorter than their recipe prescribes, or diverged."""
    lengths = span([run.epochs for run in runs], ",.0f")
    text = "" if all(run.ended for run in runs) else f", shortened: {lengths} epochs"
    diverged = sum(run.diverged for run in runs)
    return text + (f", {diverged} of {len(runs)} runs diverged" if diverged else "")


def count(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds != 1)}"
