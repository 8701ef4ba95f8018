"""Rules about the values of a variant.

Between("copy", "plstm-500", low=0.98)          every seed lies within limits
Mean("copy", "plstm-500", NEED, low=0)          the interval of their mean does
Diverges("copy", "nru")                         every run ends in values that are not finite
Offset("ptb-char", ("lstm", "plstm"), 0.01)     several differ from the published values by the same amount
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .judged import FAILS, HOLDS, OPEN, SEEDS, TOO_FEW, Judged, count, short, variant_of, what_of
from .paired import mean_and_error
from .quantities import Quantity, published_of, value_of
from .recipe import EXPERIMENTS, Metric
from .rows import span
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
    """The 95% interval of the mean over the seeds lies between `low` and `high`; it fails if all of it lies
    outside."""

    home: str
    variant: str
    key: str | Quantity = ""
    low: float = -math.inf
    high: float = math.inf
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        known, judged = _values(self.home, self.variant, self.key, store, self.seeds)
        if not known:
            return judged
        low, high = interval([value for _, value in known])
        what = what_of(self.home, self.key)
        words = f"mean within {what.show(low)} and {what.show(high)}"
        if self.low < low and high < self.high:
            return judged.with_state(HOLDS, words)
        outside = high < self.low or low > self.high
        return judged.with_state(
            FAILS if outside else OPEN, words if outside else f"{words}, undecided"
        )


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


@dataclass(frozen=True)
class Diverges:
    """Every run diverges; with expected=False none does."""

    home: str
    variant: str
    expected: bool = True
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        runs = store.all_of(variant_of(self.home, self.variant))
        if not runs:
            return Judged(OPEN, self.variant, "no runs")
        ends = ", ".join(
            f"{'diverged after' if run.diverged else 'finite for'} {run.updates:,} updates"
            for run in runs
        )
        judged = Judged(OPEN, f"{self.variant}: {ends}", count(len(runs)), tuple(runs))
        if len(runs) < self.seeds:
            return judged.with_state(OPEN, TOO_FEW)
        if any(run.diverged is not self.expected for run in runs if run.ended):
            return judged.with_state(FAILS)
        return judged.with_state(HOLDS if all(run.ended for run in runs) else OPEN)


@dataclass(frozen=True)
class Offset:
    """The measured means of several variants differ from the published ones by one amount, to `within`."""

    home: str
    variants: tuple[str, ...]
    within: float
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, "")
        offsets: list[float] = []
        runs: list[list[Summary]] = []
        for name in self.variants:
            variant = variant_of(self.home, name)
            own = [run for run in store.all_of(variant) if value_of(run, what) is not None]
            published = published_of(variant, what)
            if not own or published is None:
                return Judged(OPEN, f"{name}: measured - published", "no runs", begun=bool(runs))
            values = [float(value_of(run, what) or 0) for run in own]
            offsets.append(mean_and_error(values)[0] - published)
            runs.append(own)
        numbers = ", ".join(
            f"{name} {offset * what.scale:+.{what.digits}f}"
            for name, offset in zip(self.variants, offsets, strict=True)
        )
        seeds = span([len(own) for own in runs], "d")
        remarks = f"{what.label}, {seeds} seeds"
        used = tuple(run for own in runs for run in own)
        judged = Judged(OPEN, f"measured - published: {numbers}", remarks, used)
        if min(map(len, runs)) < self.seeds:
            return judged.with_state(OPEN, TOO_FEW)
        return judged.with_state(HOLDS if max(offsets) - min(offsets) <= self.within else FAILS)
