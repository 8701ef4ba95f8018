"""Rules that compare two variants seed by seed.

Ahead("imdb", "plstm", "lstm")     one is ahead of the other
"""

from __future__ import annotations

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
from .paired import Difference, bounds, differences, mean_and_error, shown, signed
from .quantities import Quantity, published_of, value_of
from .recipe import Metric
from .significance import RANKED, decided, interval, ranks, student
from .store import Store, Summary


@dataclass(frozen=True)
class Ahead:
    """`first` has a higher value than `second`, or than `times` its value (with less=True: a lower one): over
    their common seeds, the 95% interval of the difference lies on that side of 0 (significance.py). SAME: the
    interval contains 0, and all of it is closer to 0 than the margin: `margin`, or without one half of the
    published difference. OPEN if neither is better than guessing by the margin. key: as in what_of."""

    home: str
    first: str
    second: str
    key: str | Quantity = ""
    less: bool = False
    seeds: int = SEEDS
    margin: float = 0.0
    times: float = 1.0

    def __call__(self, store: Store) -> Judged:
        what = what_of(self.home, self.key)
        names = self.first, self.second
        pairs, judged = compared(self.home, *names, what, store, self.seeds, self.times)
        if not pairs:
            return judged
        if not self._learned(what, judged.runs):
            return judged.with_state(OPEN, "neither learned")
        if side := decided(pairs):
            return judged.with_state(HOLDS if (side < 0) is self.less else FAILS)
        if any(one.bound for one in pairs):
            return judged.with_state(OPEN, f"undecided, {_signs(pairs)}")
        widest = max(map(abs, interval([one.value for one in pairs])))
        limit = f"within ±{what.show(widest)}"
        if widest < self._margin(what):
            return judged.with_state(SAME, f"no difference found, {limit}", limit)
        return judged.with_state(OPEN, f"undecided, {limit}")

    def _margin(self, what: Metric | Quantity) -> float:
        first, second = (
            published_of(variant_of(self.home, name), what) for name in (self.first, self.second)
        )
        published = 0.0 if first is None or second is None else abs(first - second) / 2
        return self.margin or published

    def _learned(self, what: Metric | Quantity, runs: Sequence[Summary]) -> bool:
        """Whether the mean of a variant is better than guessing by the margin, if that has a known value."""
        if isinstance(what, Quantity) or what.guess is None:
            return True
        side = -1 if self.less else 1
        means = (
            mean_and_error([run.metrics[what.key] for run in runs if run.variant == name])[0]
            for name in (self.first, self.second)
        )
        return any(side * (mean - what.guess) > self._margin(what) for mean in means)


def compared(
    home: str,
    first: str,
    second: str,
    what: Metric | Quantity,
    store: Store,
    seeds: int,
    times: float = 1.0,
) -> tuple[list[Difference], Judged]:
    """The differences, with what is to be said about them; none, if they decide nothing. An unknown one is
    shown and does not count as a seed."""
    runs = [store.all_of(variant_of(home, name)) for name in (first, second)]
    pairs = differences(what, *runs, times=times)
    name = f"{first} - " + f"{times:g} x " * (times != 1) + second
    lacking = [n for n, own in zip((first, second), runs, strict=True) if not own]
    if lacking:
        which = f" of {lacking[0]}" * any(runs)
        return [], Judged(OPEN, name, f"no runs{which}", begun=any(runs))
    if not pairs:
        return [], Judged(OPEN, name, _why_not_compared(what, *runs), (*runs[0], *runs[1]))
    common = {one.seed for one in pairs}
    used = tuple(run for run in (*runs[0], *runs[1]) if run.seed in common)
    known = sum(not one.unknown for one in pairs)
    remarks = f"{what.label}, {count(known)}{_ranked(pairs, what)}{short(used)}{bounds(pairs)}"
    judged = Judged(OPEN, f"{name}: {shown(pairs, what)}", remarks, used)
    return (pairs, judged) if known >= seeds else ([], judged.with_state(OPEN, TOO_FEW))


def _ranked(pairs: Sequence[Difference], what: Metric | Quantity) -> str:
    """That ranks decide, with their interval beside the one that would follow from the mean and its error."""
    if sum(not one.unknown for one in pairs) < RANKED:
        return ""
    if any(one.bound for one in pairs):
        return ", signed ranks"
    values = [one.value for one in pairs]
    texts = (
        " to ".join(signed(what, end) for end in ends) + ", undecided" * (ends[0] <= 0 <= ends[1])
        for ends in (ranks(values), student(values))
    )
    return ", signed ranks: {} (Student's t would give {})".format(*texts)


def _signs(pairs: Sequence[Difference]) -> str:
    below, above = (sum(side * one.value > 0 for one in pairs) for side in (-1, 1))
    known = sum(not one.unknown for one in pairs)
    return f"{'below' if below >= above else 'above'} 0 in {max(below, above)} of {known}"


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
