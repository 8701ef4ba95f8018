"""Rules that compare two variants seed by seed.

Ahead("imdb", "plstm", "lstm")                         one is ahead of the other
Comparable("copy", "plstm-500", "chrono", "acc", .1)   they differ by at most .1
Times("copy", "lstm", "plstm", "updates_to_90", 2)     one needs at least twice the updates of the other
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .judged import (
    FAILS,
    HOLDS,
    OPEN,
    SAME,
    SEEDS,
    TOO_FEW,
    Judged,
    count,
    short,
    variant_of,
    what_of,
)
from .paired import Difference, bounds, differences, mean_and_error, shown
from .quantities import Quantity, published_of, value_of
from .recipe import Metric
from .significance import RANKED, decided, interval
from .store import Store, Summary


@dataclass(frozen=True)
class Ahead:
    """`first` has a higher value than `second` (with less=True: a lower one): over their common seeds, the 95%
    interval of the difference lies on that side of 0. A bound (paired.py) never counts against its own
    direction. SAME: the interval contains 0, and all of it is closer to 0 than the margin: half of the
    published difference, or `margin` if nothing is published. key: as in what_of."""

    home: str
    first: str
    second: str
    key: str | Quantity = ""
    less: bool = False
    seeds: int = SEEDS
    margin: float = 0.0

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, self.key)
        found, judged = _compared(self.home, self.first, self.second, what, store, self.seeds)
        if not found:
            return judged
        if side := decided(found):
            return judged.with_state(HOLDS if (side < 0) is self.less else FAILS)
        if any(one.bound for one in found):
            return judged.with_state(OPEN, "undecided")
        widest = max(map(abs, interval([one.value for one in found])))
        limit = f"within ±{what.show(widest)}"
        if widest < self._margin(what):
            return judged.with_state(SAME, f"no difference found, {limit}", limit)
        return judged.with_state(OPEN, f"undecided, {limit}")

    def _margin(self, what: Metric | Quantity) -> float:
        first, second = (
            published_of(variant_of(self.home, name), what) for name in (self.first, self.second)
        )
        return self.margin if first is None or second is None else abs(first - second) / 2


@dataclass(frozen=True)
class Comparable:
    """The 95% interval of the difference lies within ± margin."""

    home: str
    first: str
    second: str
    key: str | Quantity
    margin: float
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, self.key)
        found, judged = _compared(self.home, self.first, self.second, what, store, self.seeds)
        if not found:
            return judged
        low, high = interval([one.value for one in found])
        if any(one.bound for one in found) or low < self.margin < high or low < -self.margin < high:
            return judged.with_state(OPEN, "undecided")
        return judged.with_state(HOLDS if -self.margin <= low <= high <= self.margin else FAILS)


def _compared(
    home: str, first: str, second: str, what: Metric | Quantity, store: Store, seeds: int
) -> tuple[list[Difference], Judged]:
    """The differences, with what is to be said about them; none, if they decide nothing."""
    runs = [store.all_of(variant_of(home, name)) for name in (first, second)]
    found = differences(what, *runs)
    name = f"{first} - {second}"
    lacking = [n for n, own in zip((first, second), runs, strict=True) if not own]
    if lacking:
        which = f" of {lacking[0]}" * any(runs)
        return [], Judged(OPEN, name, f"no runs{which}", begun=any(runs))
    if not found:
        return [], Judged(OPEN, name, _why_not_compared(what, *runs), (*runs[0], *runs[1]))
    common = {one.seed for one in found}
    used = tuple(run for run in (*runs[0], *runs[1]) if run.seed in common)
    ranked = ", signed ranks" * (len(found) >= RANKED)
    remarks = f"{what.label}, {count(len(found))}{ranked}{short(used)}{bounds(found)}"
    judged = Judged(OPEN, f"{name}: {shown(found, what)}", remarks, used)
    return (found, judged) if len(found) >= seeds else ([], judged.with_state(OPEN, TOO_FEW))


def _why_not_compared(
    what: Metric | Quantity, first: Sequence[Summary], second: Sequence[Summary]
) -> str:
    common = [(a, b) for a in first for b in second if a.seed == b.seed]
    known = [pair for pair in common if all(value_of(run, what) is not None for run in pair)]
    if known:
        lengths = ", ".join(f"{a.epochs:.3g} and {b.epochs:.3g}" for a, b in known)
        return f"runs of different lengths: {lengths} epochs"
    if common:
        return f"no seed of {len(common)} has {what.label} in both"
    values = [
        ", ".join(
            f"{'-' if (value := value_of(run, what)) is None else what.show(value)} after {run.epochs:,.0f} "
            f"epochs (seed {run.seed})"
            for run in runs
        )
        for runs in (first, second)
    ]
    return f"{what.label}, no seed in common: {values[0]}; {values[1]}"


@dataclass(frozen=True)
class Times:
    """`first` needs at least `low` times the updates of `second` to the level of `key`: the mean of the ratio
    over common seeds. If `first` did not get there, the updates that it made count, so the ratio is a bound."""

    home: str
    first: str
    second: str
    key: str
    low: float
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, self.key)
        first, second = (
            {run.seed: run for run in store.all_of(variant_of(self.home, name))}
            for name in (self.first, self.second)
        )
        both = [(first[seed], second[seed]) for seed in first if seed in second]
        pairs = [(a, b) for a, b in both if value_of(b, what) and a.history]
        name = f"{self.first} / {self.second}"
        if not pairs:
            return Judged(OPEN, name, "no runs to compare", begun=bool(first))
        ratios = [
            (value_of(a, what) or a.history[-1]["update"]) / (value_of(b, what) or math.inf)
            for a, b in pairs
        ]
        late = sum(value_of(a, what) is None for a, _ in pairs)
        mean, _ = mean_and_error(ratios)
        text = f"{name}: " + ", ".join(f"{ratio:.2f}" for ratio in ratios) + f", mean {mean:.2f}"
        used = tuple(run for pair in pairs for run in pair)
        remarks = f"{what.label}, {count(len(pairs))}{short(used)}"
        remarks += f"; {late} of {self.first} not there, so a bound" * bool(late)
        judged = Judged(OPEN, text, remarks, used)
        if len(pairs) < self.seeds:
            return judged.with_state(OPEN, TOO_FEW)
        if mean < self.low and late:
            return judged.with_state(OPEN, "undecided")
        return judged.with_state(HOLDS if mean >= self.low else FAILS)
