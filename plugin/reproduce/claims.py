"""The papers' claims, each with a verdict and a sentence computed from the summaries.

    register_claim("The power law is ahead of the LSTM on ...", "PL 4.4", Ahead("imdb", "plstm", "lstm"))

A claim has one rule or more. It is *reproduced* if all of them hold, *in part* if some hold and some fail, *not
reproduced* if one fails and none holds, and otherwise *open*: runs are missing or undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .quantities import Quantity
from .recipe import EXPERIMENTS, Metric, Variant
from .rows import mean_and_error
from .store import Store

SEEDS = 3  # with fewer seeds a rule stays open
OPEN, HOLDS, FAILS = "open", "holds", "fails"
PAPERS = ("PL", "FG", "MTS")  # the order of the table


@dataclass(frozen=True)
class Judged:
    """OPEN, HOLDS or FAILS, with a phrase that says why."""

    state: str
    phrase: str


Rule = Callable[[Store], Judged]


@dataclass(frozen=True)
class Ahead:
    """`first` has a higher value of a metric than `second` (with less=True: a lower one): over their common
    seeds, the 95% interval of the mean difference (Student's t) lies on that side of 0. key: the metric's key,
    "" for the table's first column, or a quantity from the details of the runs."""

    home: str
    first: str
    second: str
    key: str | Quantity = ""
    less: bool = False
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        metric = self.key if isinstance(self.key, Quantity) else _metric(self.home, self.key)
        a, b = (_by_seed(self.home, name, metric, store) for name in (self.first, self.second))
        both = sorted(set(a) & set(b))
        name = f"{self.first} - {self.second}"
        if not both:
            common = len(
                _seeds(self.home, self.first, store) & _seeds(self.home, self.second, store)
            )
            lacking = f"no seed of {common} has {metric.label} in both"
            return Judged(OPEN, f"{name}: {lacking if common else 'no common runs'}")
        differences = [metric.scale * (a[seed] - b[seed]) for seed in both]
        mean, error = mean_and_error(differences)
        text = f"{name}: {mean:+,.{metric.digits}f}"
        text += "" if error is None else f" ± {error:,.{metric.digits}f}"
        text += f" ({metric.label}, {_count(len(both))}{_short(self.home, (self.first, self.second), store)})"
        if len(both) < self.seeds:
            return Judged(OPEN, text)
        gain = -mean if self.less else mean
        margin = 0.0 if error is None else error * quantile(len(both) - 1)
        if abs(gain) <= margin:
            return Judged(OPEN, f"{text}, undecided")
        return Judged(HOLDS if gain > 0 else FAILS, text)


@dataclass(frozen=True)
class Reaches:
    """A metric of a variant is at least (with less=True: at most) `value` for every seed."""

    home: str
    variant: str
    value: float
    key: str = ""
    less: bool = False
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        metric = _metric(self.home, self.key)
        values = list(_by_seed(self.home, self.variant, metric, store).values())
        if not values:
            return Judged(OPEN, f"{self.variant}: not run")
        shown = ", ".join(map(metric.show, values))
        text = f"{self.variant}: {metric.label} {shown}{_short(self.home, (self.variant,), store)}"
        right = [value <= self.value if self.less else value >= self.value for value in values]
        if len(values) < self.seeds:
            return Judged(OPEN, f"{text} ({_count(len(values))})")
        return Judged(HOLDS if all(right) else FAILS, text)


@dataclass(frozen=True)
class Between:
    """For every seed, a number found by an analysis lies between `low` and `high`."""

    home: str
    variant: str
    quantity: Quantity
    low: float = -math.inf
    high: float = math.inf
    seeds: int = SEEDS

    def __call__(self, store: Store) -> Judged:
        known = store.all_of(_variant(self.home, self.variant))
        found = [(run, self.quantity.of(run.details)) for run in known]
        values = [value for _, value in found if value is not None]
        if not values:
            return Judged(OPEN, f"{self.variant}: not analysed")
        shown = ", ".join(map(self.quantity.show, values))
        short = "" if all(run.ended for run, value in found if value is not None) else ", shortened"
        text = f"{self.variant}: {self.quantity.label} {shown}{short}"
        if len(values) < self.seeds:
            return Judged(OPEN, f"{text} ({_count(len(values))})")
        right = all(self.low <= value <= self.high for value in values)
        return Judged(HOLDS if right else FAILS, text)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, in our words, and the rules that must hold."""

    text: str
    source: str
    rules: tuple[Rule, ...]

    def verdict(self, store: Store) -> tuple[str, str]:
        """(verdict, why)."""
        judged = [rule(store) for rule in self.rules]
        why = "; ".join(one.phrase for one in judged) or "no rule tests it yet"
        states = {one.state for one in judged}
        if states == {HOLDS}:
            return "reproduced", why
        if FAILS in states:
            return ("in part" if HOLDS in states else "not reproduced"), why
        return OPEN, why


CLAIMS: list[Claim] = []


def register_claim(text: str, source: str, *rules: Rule) -> None:
    CLAIMS.append(Claim(text, source, rules))


def quantile(freedom: int) -> float:
    """Student's t, two-sided 95%."""
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def claims_table(store: Store) -> list[str]:
    """The table of claims at the top of the page."""
    lines = ["| claim | paper | verdict | evidence |", "|---|---|---|---|"]
    for claim in sorted(CLAIMS, key=_place):
        verdict, why = claim.verdict(store)
        lines.append(f"| {claim.text} | {claim.source} | {verdict} | {why} |")
    return lines


def _place(claim: Claim) -> tuple[int, str, str]:
    """Sort key by paper and section, independent of the import order of recipes."""
    return PAPERS.index(claim.source.split()[0]), claim.source, claim.text


def _metric(home: str, key: str) -> Metric:
    metrics = EXPERIMENTS.get(home).metrics
    found = [metric for metric in metrics if metric.key == (key or metrics[0].key)]
    if not found:
        raise ValueError(f"experiment {home!r} has no metric {key!r}")
    return found[0]


def _variant(home: str, name: str) -> Variant:
    return EXPERIMENTS.get(home).variant(name)


def _seeds(home: str, name: str, store: Store) -> set[int]:
    return {run.seed for run in store.all_of(_variant(home, name))}


def _by_seed(home: str, name: str, what: Metric | Quantity, store: Store) -> dict[int, float]:
    found = {
        run.seed: run.metrics.get(what.key) if isinstance(what, Metric) else what.of(run.details)
        for run in store.all_of(_variant(home, name))
    }
    return {seed: value for seed, value in found.items() if isinstance(value, (int, float))}


def _short(home: str, names: Sequence[str], store: Store) -> str:
    """A remark if a run was shorter than its recipe prescribes."""
    runs = [run for name in names for run in store.all_of(_variant(home, name))]
    return "" if all(run.ended for run in runs) else ", shortened"


def _count(seeds: int) -> str:
    return f"{seeds} seed{'s' * (seeds != 1)}"
