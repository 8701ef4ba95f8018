"""Single numbers from a summary, for tables and for the rules of claims."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..common.lazy import np
from .recipe import Metric
from .store import Summary

Numbers = Any  # the result of an analysis, as JSON
LONG = 150  # words; PL figure 4 shows a gain above this length


_FIRST = re.compile(r"\d+")


@dataclass(frozen=True)
class Quantity:
    """detail: the name of a measure with details; empty for the metrics of a run. value: computes the quantity
    from its numbers, or None if they do not contain it."""

    detail: str
    label: str
    value: Callable[[Numbers], float | None]
    scale: float = 1.0
    digits: int = 2

    def of(self, run: Summary) -> float | None:
        """The quantity of a run; None if the run was not analysed."""
        if not self.detail:
            return self.value(run.metrics)
        found = run.details.get(self.detail)
        if found is None:
            return None
        return self.value(found["numbers"] if isinstance(found, dict) else found)

    def show(self, value: float) -> str:
        return f"{value * self.scale:,.{self.digits}f}"


def value_of(run: Summary, what: Metric | Quantity) -> float | None:
    """The number of a run; None if it has none."""
    if isinstance(what, Quantity):
        return what.of(run)
    found = run.metrics.get(what.key)
    return found if isinstance(found, (int, float)) else None


def _ablation_gap(numbers: Numbers) -> float | None:
    if numbers["first"] is None:
        return None
    return float(np.mean(numbers["random"]) - np.mean(numbers["first"]))


def _long_accuracy(rows: Numbers) -> float | None:
    """The accuracy over the bins of `by_length` above LONG."""
    counted = [row for row in rows if int(_FIRST.findall(row["label"])[0]) > LONG]
    texts = sum(row["sequences"] for row in counted)
    return sum(row["sequences"] * row["accuracy"] for row in counted) / texts if texts else None


def _routing(bin: str) -> Callable[[Numbers], float | None]:
    def value(numbers: Numbers) -> float | None:
        column = numbers["bins"].index(bin)
        ratios = [row[column] for row in numbers["ratios"]]
        if None in ratios:  # the bin has no words
            return None
        from ..analysis.timescales import spearman

        return spearman(np.array(numbers["timescales"]), np.array(ratios))

    return value


WAITING = Quantity(
    "reference-times", "units that reset late, %", lambda n: float(np.mean(n["later"])), 100, 0
)
ABLATION = Quantity(
    "unit-ablation",
    "accuracy without random units - without late-reset units, mean over numbers of units, %",
    _ablation_gap,
    100,
    1,
)
ROBUSTNESS = Quantity(
    "unit-ablation",
    "accuracy without random units, mean over numbers of units, %",
    lambda n: float(np.mean(n["random"])),
    100,
    1,
)
LONG_REVIEWS = Quantity(
    "by_length", f"accuracy of reviews over {LONG} words, %", _long_accuracy, 100, 2
)
EXPONENT = Quantity("learned-p", "mean p", lambda n: float(np.mean(n["p"][-1])))
FIT = Quantity(
    "timescale-fit",
    "distance to a narrow Gaussian - to an inverse gamma (Kolmogorov-Smirnov)",
    lambda n: n["mean_statistic"] - n["alpha_statistic"],
    digits=3,
)


def log_ratio(one: Metric, other: Metric) -> Quantity:
    """Its difference between two models is negative if `one` falls by a larger factor than `other`."""

    def value(metrics: Numbers) -> float | None:
        values = metrics.get(one.key), metrics.get(other.key)
        return None if None in values else math.log(values[0] / values[1])

    return Quantity("", f"log of {one.label} / {other.label}", value, digits=4)


def routing(bin: str) -> Quantity:
    """How strongly a bin's words depend on units with longer timescales (rank correlation)."""
    label = f"rank correlation between a group's timescale and the harm to words {bin} without it"
    return Quantity("routing", label, _routing(bin))
