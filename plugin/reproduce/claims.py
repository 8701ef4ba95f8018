"""The papers' claims, each with a verdict and a sentence computed from the summaries.

    register_claim("The power law is ahead of the LSTM on ...", "PL 4.4", Ahead("imdb", "plstm", "lstm"))

A claim has one rule or more. It is *reproduced* if all of them hold, *in part* if some hold and some fail, *not
reproduced* if one fails and none holds, *not run* if there is no run for any of them, and otherwise *open*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from .paired import Difference, bounds, differences, mean_and_error, shown
from .quantities import Quantity, value_of
from .recipe import EXPERIMENTS, Metric, Variant
from .rows import span
from .store import Store, Summary

SEEDS = 3  # with fewer seeds a rule stays open
OPEN, HOLDS, FAILS = "open", "holds", "fails"
PAPERS = ("PL", "FG", "MTS")  # the order of the table
REPRODUCED, IN_PART, NOT_REPRODUCED = "reproduced", "in part", "not reproduced"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, IN_PART, NOT_REPRODUCED, OPEN, NOT_RUN)


@dataclass(frozen=True)
class Judged:
    """OPEN, HOLDS or FAILS, with a phrase that says why. remarks: what was measured, and how. runs: from which
    this follows. begun: whether there are runs that it cannot follow from, e.g. of only one side."""

    state: str
    phrase: str
    remarks: str = ""
    runs: tuple[Summary, ...] = field(default=(), compare=False)
    begun: bool = field(default=False, compare=False)


Rule = Callable[[Store], Judged]


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
        remarks = f"{what.label}, {_count(len(found))}{_short(used)}{bounds(found)}"
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


def decided(found: Sequence[Difference]) -> int:
    """The side of 0 on which the mean difference is, 1 or -1; 0 if that is undecided."""
    mean, error = mean_and_error([one.value for one in found])
    margin = 0.0 if error is None else error * quantile(len(found) - 1)
    against = any(one.bound and one.value * mean < 0 for one in found)
    return 0 if abs(mean) <= margin or against else int(math.copysign(1, mean))


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
        remarks = f"{what.label}, {_count(len(known))}{_short(used)}"
        if len(known) < self.seeds:
            return Judged(OPEN, text, remarks, used)
        worth = EXPERIMENTS.get(variant.home).worth_of(variant)
        final = [value for run, value in known if run.ended or worth.is_enough(run.epochs)]
        if not all(self.low <= value <= self.high for value in final):
            return Judged(FAILS, text, remarks, used)
        if len(final) < len(known):
            return Judged(OPEN, f"{text}, undecided", remarks, used)
        return Judged(HOLDS, text, remarks, used)


class Verdict(NamedTuple):
    """extent: how many seeds and epochs it is based on."""

    name: str
    why: str
    extent: str


def extent(judged: Sequence[Judged]) -> str:
    """The fewest seeds of a rule; the epochs of runs that are shorter than their recipe."""
    seeds = min((len({run.seed for run in one.runs}) for one in judged if one.runs), default=0)
    used = [run for one in judged for run in one.runs]
    short = [
        run for run in used if run.epochs < run.of_epochs and not run.ended and not run.diverged
    ]
    if not short:
        return _count(seeds)
    done, full = [run.epochs for run in short], [float(run.of_epochs) for run in short]
    return f"{_count(seeds)}, {span(done, ',.0f')} of {span(full, ',.0f')} epochs"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, in our words, and the rules that must hold."""

    text: str
    source: str
    rules: tuple[Rule, ...]

    def verdict(self, store: Store) -> Verdict:
        judged = [rule(store) for rule in self.rules]
        why = in_words(judged) or "no rule tests it yet"
        states = {one.state for one in judged}
        verdict = OPEN if any(one.runs or one.begun for one in judged) else NOT_RUN
        if states == {HOLDS}:
            verdict = REPRODUCED
        elif FAILS in states:
            verdict = IN_PART if HOLDS in states else NOT_REPRODUCED
        return Verdict(verdict, why, extent(judged))


def in_words(judged: Sequence[Judged]) -> str:
    """All phrases; neighbours with the same remarks share them."""
    parts = []
    for remarks, group in groupby(judged, key=lambda one: one.remarks):
        phrases = "; ".join(one.phrase for one in group)
        parts.append(f"{phrases} ({remarks})" if remarks else phrases)
    return "; ".join(parts)


CLAIMS: list[Claim] = []


def register_claim(text: str, source: str, *rules: Rule) -> None:
    CLAIMS.append(Claim(text, source, rules))


def quantile(freedom: int) -> float:
    """Student's t, two-sided 95%."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def claims_judged(store: Store) -> list[tuple[Claim, Verdict]]:
    """By paper and section."""
    return [(claim, claim.verdict(store)) for claim in sorted(CLAIMS, key=_place)]


def claims_table(store: Store) -> list[str]:
    """The table of claims at the top of the page, with links to the sections of their experiments."""
    lines = ["| claim | paper | verdict | evidence |", "|---|---|---|---|"]
    for claim, verdict in claims_judged(store):
        homes = {rule.home: None for rule in claim.rules if isinstance(rule, (Ahead, Between))}
        links = ", ".join(f"[{home}](#{home})" for home in homes)
        lines.append(f"| {claim.text} | {claim.source} | {verdict.name} | {links}: {verdict.why} |")
    return lines


def _place(claim: Claim) -> tuple[int, str, str]:
    """Sort key by paper and section, independent of the import order of recipes."""
    return PAPERS.index(claim.source.split()[0]), claim.source, claim.text


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


def _count(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds != 1)}"
