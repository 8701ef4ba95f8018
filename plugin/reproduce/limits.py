"""Rules about the values of a variant.

Between("copy", "plstm-500", low=0.98)                 every seed lies within limits
Mean("copy", "plstm-500", NEED, low=0)                 the interval of their mean does
Mean("copy", "plstm-500", "", -0.1, 0.1, "lstm-500")   that of the difference from another variant does
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .comparisons import compared
from .judged import FAILS, HOLDS, OPEN, SEEDS, TOO_FEW, Judged, count, short, variant_of, what_of
from .quantities import Quantity, value_of
from .recipe import EXPERIMENTS, Metric
from .significance import interval
from .store import Store, Summary


@dataclass(frozen=True)
class Between:
    """For every seed, a value lies between `low` and `high`. A run decides if it is at its end or has enough
    epochs (`Worth`). key: as in what_of."""

    home: str
    variant: str
    key: str | Quantity = ""
    low: float = -math.inf
    high: float = math.inf
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        known, judged = _values(self.home, self.variant, self.key, store, self.seeds)
        final = [value for run, value in known if _is_final(run, self.home, self.variant)]
        if not known:
            return judged
        limits = _limits(what_of(self.home, self.key), self.low, self.high)
        if not all(self.low <= value <= self.high for value in final):
            return judged.with_state(FAILS, f"not all {limits}")
        if len(final) < len(known):
            return judged.with_state(OPEN, "unfinished")
        return judged.with_state(HOLDS, f"all {limits}")


@dataclass(frozen=True)
class Mean:
    """The 95% interval of the mean over the seeds (minus that of `other`) lies between `low` and `high`; the
    rule fails if all of it lies outside."""

    home: str
    variant: str
    key: str | Quantity = ""
    low: float = -math.inf
    high: float = math.inf
    other: str = ""
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, self.key)
        if self.other:
            pair = self.variant, self.other
            pairs, judged = compared(self.home, *pair, what, store, self.seeds)
            values = [one.value for one in pairs]
        else:
            known, judged = _values(self.home, self.variant, self.key, store, self.seeds)
            pairs, values = [], [value for _, value in known]
        if not values or any(one.bound for one in pairs):
            return judged.with_state(OPEN, "undecided" * bool(values))
        low, high = interval(values)
        words = f"mean within {what.show(low)} and {what.show(high)}"
        if high < self.low or low > self.high:
            return judged.with_state(FAILS, words)
        if self.low < low and high < self.high:
            return judged.with_state(HOLDS, words)
        return judged.with_state(OPEN, f"{words}, undecided")


def _values(
    home: str, name: str, key: str | Quantity, store: Store, seeds: int
) -> tuple[list[tuple[Summary, float]], Judged]:
    """The runs with their values, with what is to be said about them; none, if they decide nothing."""
    what, variant = what_of(home, key), variant_of(home, name)
    runs = store.all_of(variant)
    known = [(run, value) for run in runs if (value := value_of(run, what)) is not None]
    if not known:
        missing = "analysed" if isinstance(what, Quantity) else "run"
        return [], Judged(OPEN, name, f"not {missing}", begun=bool(runs))
    used = tuple(run for run, _ in known)
    text = f"{name}: " + ", ".join(what.show(value) for _, value in known)
    judged = Judged(OPEN, text, f"{what.label}, {count(len(known))}{short(used)}", used)
    return (known, judged) if len(known) >= seeds else ([], judged.with_state(OPEN, TOO_FEW))


def _limits(what: Metric | Quantity, low: float, high: float) -> str:
    if math.isinf(low):
        return f"at most {what.show(high)}"
    return f"at least {what.show(low)}" + f" and at most {what.show(high)}" * math.isfinite(high)


def _is_final(run: Summary, home: str, name: str) -> bool:
    variant = variant_of(home, name)
    return run.ended or EXPERIMENTS.get(variant.home).worth_of(variant).is_enough(run.epochs)
