"""Single numbers from a summary, for tables and for the rules of claims."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..common.lazy import np
from .recipe import ELSEWHERE, Metric, Variant
from .store import Summary

Numbers = Any  # the result of an analysis, as JSON
LONG = 150  # words; PL figure 4 shows a gain above this length
FAR = 75  # brackets; MTS figure 2 shows a gain for sequences that reach further
FEW = (5, 30)  # units; with more of them silenced, models fall to chance or below it
METRICS, HISTORY, STOPPED = "metrics", "history", "stopped"  # of a run, in the place of a detail
LEARNED = 0.98  # the accuracy from which a model counts as having learned to copy
_FIRST = re.compile(r"\d+")


@dataclass(frozen=True)
class Quantity:
    """detail: the name of a measure with details, HISTORY, METRICS or STOPPED. value: computes the quantity
    from its numbers, or None if they do not contain it. also: further details, whose numbers follow."""

    detail: str
    label: str
    value: Callable[..., float | None]
    scale: float = 1.0
    digits: int = 2
    also: tuple[str, ...] = ()

    def of(self, run: Summary) -> float | None:
        """The quantity of a run; None if the run was not analysed."""
        own: dict[str, Numbers] = {
            METRICS: run.metrics,
            HISTORY: run.history,
            STOPPED: run.diverged,
        }
        own |= run.details
        parts = [own.get(name) for name in (self.detail, *self.also)]
        if any(part is None for part in parts):
            return None
        return self.value(*(p.get("numbers", p) if isinstance(p, dict) else p for p in parts))

    def show(self, value: float) -> str:
        return f"{value * self.scale:,.{self.digits}f}"


def value_of(run: Summary, what: Metric | Quantity) -> float | None:
    """The number of a run; None if it has none."""
    if isinstance(what, Quantity):
        return what.of(run)
    value = run.metrics.get(what.key)
    return value if isinstance(value, (int, float)) else None


def published_of(variant: Variant, what: Metric | Quantity) -> float | None:
    """The paper's number; None if it gives none."""
    if isinstance(what, Quantity):
        return what.value(variant.published) if what.detail == METRICS else None
    value = variant.published.get(what.key)
    return value if isinstance(value, (int, float)) else None


def _ablation_of_waiting(numbers: Numbers, times: Numbers) -> float | None:
    """The gap over the measured numbers of units from 1 to as many as wait; None if there are none."""
    silenced = np.array(numbers["silenced"])
    chosen = (silenced >= 1) & (silenced <= sum(times["later"]))
    if numbers["first"] is None or not chosen.any():
        return None
    random, first = np.array(numbers["random"]), np.array(numbers["first"])
    return float((random[..., chosen] - first[chosen]).mean())


def _share_left(numbers: Numbers) -> float:
    silenced, random = np.array(numbers["silenced"]), np.atleast_2d(numbers["random"])
    chosen = (silenced >= FEW[0]) & (silenced <= FEW[1])
    return float(random[:, chosen].mean() / random[:, 0].mean())


def _gap_of_waiting(numbers: Numbers) -> float | None:
    """The mean exponent of the units that wait, minus that of the others."""
    if numbers["later"] is None:
        return None
    p, late = np.array(numbers["p"][numbers["later_layer"] - 1]), np.array(numbers["later"], bool)
    return float(p[late].mean() - p[~late].mean()) if late.any() and not late.all() else None


def _by_group(
    bin: str, of: Callable[[np.ndarray, np.ndarray], float | None]
) -> Callable[[Numbers], float | None]:
    """A function of the groups' timescales and of the harm to the bin's words without each; None if the bin has
    no words."""

    def value(numbers: Numbers) -> float | None:
        ratios = [row[numbers["bins"].index(bin)] for row in numbers["ratios"]]
        timescales = np.array(numbers["timescales"])
        return None if None in ratios else of(timescales, np.array(ratios))

    return value


def _over(
    lengths: Sequence[int], of: Callable[[list[float]], float]
) -> Callable[[Numbers], float | None]:
    def value(metrics: Numbers) -> float | None:
        keys = [f"accuracy_at_{length}" for length in lengths]
        return of([metrics[key] for key in keys]) if set(keys) <= set(metrics) else None

    return value


def _worst(metrics: Numbers) -> float | None:
    """The least accuracy at any T; None for a run that has not learned its own T."""
    worst = _over(ELSEWHERE, min)(metrics)
    return worst if worst is not None and metrics["test_accuracy"] >= LEARNED else None


def _accuracy(chosen: Callable[[Numbers], bool]) -> Callable[[Numbers], float | None]:
    """The accuracy over the chosen groups of sequences."""

    def value(rows: Numbers) -> float | None:
        counts = [(row["sequences"], row["accuracy"]) for row in rows if chosen(row)]
        total = sum(sequences for sequences, _ in counts)
        return sum(sequences * part for sequences, part in counts) / total if total else None

    return value


def _correlation(timescales: np.ndarray, harm: np.ndarray) -> float | None:
    from ..analysis.timescales import spearman

    return spearman(timescales, harm)


WAITING = Quantity(
    "reference-times", "units that reset late, %", lambda n: float(np.mean(n["later"])), 100, 0
)
NEED = Quantity(
    "unit-ablation",
    "accuracy without random units - without units that wait, for 5, 10, ... up to as many as wait, %",
    _ablation_of_waiting,
    100,
    1,
    ("reference-times",),
)
SHARE_LEFT = Quantity(
    "unit-ablation",
    f"accuracy without {FEW[0]} to {FEW[1]} random units, % of that of the whole model",
    _share_left,
    100,
    1,
)
LONG_REVIEWS = Quantity(
    "by_length",
    f"accuracy of reviews over {LONG} words, %",
    _accuracy(lambda row: int(_FIRST.findall(row["label"])[0]) > LONG),
    100,
)
FAR_BRACKETS = Quantity(
    "by_reach",
    f"sequences right that reach {FAR} steps or further, %",
    _accuracy(lambda row: row["low"] >= FAR),
    100,
    1,
)
EXPONENT = Quantity("learned-p", "mean p", lambda n: float(np.mean(n["p"][-1])), digits=3)
WAITING_EXPONENT = Quantity(
    "learned-p", "mean p of units that wait - of the others", _gap_of_waiting
)
FIT = Quantity(
    "timescale-fit",
    "distance to a narrow Gaussian - to an inverse gamma (Kolmogorov-Smirnov)",
    lambda n: n["mean_statistic"] - n["alpha_statistic"],
    digits=3,
)
SHAPE = Quantity("timescale-fit", "shape alpha of the best fit", lambda n: n["alpha"])
CENTRE = Quantity("timescale-fit", "mean of the best narrow Gaussian", lambda n: n["mean"])
SHORTER = Quantity(
    METRICS, "accuracy at shorter T, %", _over([T for T in ELSEWHERE if T < 200], fmean), 100, 1
)
LONGER = Quantity(
    METRICS, "accuracy at longer T, %", _over([T for T in ELSEWHERE if T > 200], fmean), 100, 1
)
WORST = Quantity(METRICS, "accuracy at the worst T of runs that have learned, %", _worst, 100, 1)
DIVERGED = Quantity(STOPPED, "runs that diverged count as 1, others as 0", float, digits=0)


def harmed_most(bin: str) -> Quantity:
    label = f"timescale of the group without which words {bin} suffer most"
    return Quantity(
        "routing", label, _by_group(bin, lambda t, harm: float(t[harm.argmax()])), digits=1
    )


def accuracy_by(epochs: int) -> Quantity:
    """The best validation accuracy within the first epochs."""

    def value(history: Numbers) -> float | None:
        return max((row["accuracy"] for row in history if row["epoch"] <= epochs), default=None)

    return Quantity(HISTORY, f"accuracy within {epochs} epochs, %", value, 100, 1)


def log_ratio(one: Metric, other: Metric) -> Quantity:
    """Its difference between two models is negative if `one` falls by a larger factor than `other`."""

    def value(metrics: Numbers) -> float | None:
        values = metrics.get(one.key), metrics.get(other.key)
        return None if None in values else math.log(values[0] / values[1])

    return Quantity(METRICS, f"log of {one.label} / {other.label}", value, digits=4)


def routing(bin: str) -> Quantity:
    """How strongly a bin's words depend on units with longer timescales (rank correlation)."""
    label = f"rank correlation between a group's timescale and the harm to words {bin} without it"
    return Quantity("routing", label, _by_group(bin, _correlation))
