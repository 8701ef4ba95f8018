"""The rules by which claims are judged, each from the summaries of one or two variants.

Ahead("imdb", "plstm", "lstm")                  one is ahead of the other
Between("copy", "plstm-200", low=0.98)          all values lie within limits
Times("copy", "lstm-200", "plstm-200", low=2)   one is several times the other
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .paired import bounds, differences, mean_and_error, shown
from .quantities import Quantity, value_of
from .recipe import EXPERIMENTS, Metric, Variant
from .rows import span
from .significance import RANKED, decided
from .store import Store, Summary

SEEDS = 3  # with fewer seeds a rule stays open
OPEN, HOLDS, FAILS = "open", "holds", "fails"


@dataclass(frozen=True)
class Judged:
    """OPEN, HOLDS or FAILS, with a phrase that says why. remarks: what was measured, and how. runs: from which
    this follows. begun: whether there are runs that it cannot follow from, e.g. of only one side."""

    state: str
    phrase: str
    remarks: str = ""
    runs: tuple[Summary, ...] = field(default=(), compare=False)
    begun: bool = field(default=False, compare=False)


class Rule(Protocol):
    """home: the experiment to which the page links."""

    @property
    def home(self) -> str: ...

    def __call__(self, store: Store) -> Judged: ...


@dataclass(frozen=True)
class Ahead:
    """`first` has a higher value than `second` (with less=True: a lower one): over their common seeds, the 95%
    interval of the mean difference (Student's t) lies on that side of 0. A bound (paired.py) never counts
    against its own direction. key: as in _what."""

    home: str
    first: str
    second: str
    key: str | Quantity = ""
    less: bool = False
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what = _what(self.home, self.key)
        runs = [store.all_of(_variant(self.home, name)) for name in (self.first, self.second)]
        found = differences(what, *runs)
        name = f"{self.first} - {self.second}"
        lacking = [n for n, there in zip((self.first, self.second), runs, strict=True) if not there]
        if lacking:
            which = f" of {lacking[0]}" * any(runs)
            return Judged(OPEN, name, f"no runs{which}", begun=any(runs))
        if not found:
            return Judged(OPEN, name, _why_not_compared(what, *runs), (*runs[0], *runs[1]))
        seeds = {one.seed for one in found}
        used = tuple(run for run in (*runs[0], *runs[1]) if run.seed in seeds)
        text = f"{name}: {shown(found, what)}"
        ranked = ", signed ranks" * (len(found) >= RANKED)
        remarks = f"{what.label}, {count(len(found))}{ranked}{_short(used)}{bounds(found)}"
        if len(found) < self.seeds:
            return Judged(OPEN, text, remarks, used)
        side = decided(found)
        if not side:
            return Judged(OPEN, f"{text}, undecided", remarks, used)
        return Judged(HOLDS if (side < 0) is self.less else FAILS, text, remarks, used)


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
class Between:
    """For every seed, a value lies between `low` and `high`. A run decides if it is at its end or has enough
    epochs (`Worth`). key: as in _what."""

    home: str
    variant: str
    key: str | Quantity = ""
    low: float = -math.inf
    high: float = math.inf
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what, variant = _what(self.home, self.key), _variant(self.home, self.variant)
        found = [(run, value_of(run, what)) for run in store.all_of(variant)]
        known = [(run, value) for run, value in found if value is not None]
        if not known:
            missing = "analysed" if isinstance(what, Quantity) else "run"
            return Judged(OPEN, self.variant, f"not {missing}", begun=bool(found))
        text = f"{self.variant}: " + ", ".join(what.show(value) for _, value in known)
        used = tuple(run for run, _ in known)
        remarks = f"{what.label}, {count(len(known))}{_short(used)}"
        if len(known) < self.seeds:
            return Judged(OPEN, text, remarks, used)
        worth = EXPERIMENTS.get(variant.home).worth_of(variant)
        final = [value for run, value in known if run.ended or worth.is_enough(run.epochs)]
        if not all(self.low <= value <= self.high for value in final):
            return Judged(FAILS, text, remarks, used)
        if len(final) < len(known):
            return Judged(OPEN, f"{text}, undecided", remarks, used)
        return Judged(HOLDS, text, remarks, used)


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
        what = _what(self.home, self.key)
        first, second = (
            {run.seed: run for run in store.all_of(_variant(self.home, name))}
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
        remarks = f"{what.label}, {count(len(pairs))}{_short(used)}"
        remarks += f"; {late} of {self.first} not there, so a bound" * bool(late)
        if len(pairs) < self.seeds or (mean < self.low and late):
            return Judged(OPEN, text, remarks, used)
        return Judged(HOLDS if mean >= self.low else FAILS, text, remarks, used)


def _what(home: str, key: str | Quantity) -> Metric | Quantity:
    """A quantity, the metric with this key, or for "" the table's first column."""
    if isinstance(key, Quantity):
        return key
    metrics = EXPERIMENTS.get(home).metrics
    found = [metric for metric in metrics if metric.key == (key or metrics[0].key)]
    if not found:
        raise ValueError(f"experiment {home!r} has no metric {key!r}")
    return found[0]


def _variant(home: str, name: str) -> Variant:
    return EXPERIMENTS.get(home).variant(name)


def _short(runs: Sequence[Summary]) -> str:
    """Remarks if runs were shorter than their recipe prescribes, or diverged."""
    lengths = span([run.epochs for run in runs], ",.0f")
    text = "" if all(run.ended for run in runs) else f", shortened: {lengths} epochs"
    diverged = sum(run.diverged for run in runs)
    return text + (f", {diverged} of {len(runs)} runs diverged" if diverged else "")


def count(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds != 1)}"
