"""Single numbers of the analyses that a summary keeps, for the rules of claims.

Each takes the `numbers` of one analysis (findings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analysis.timescales import spearman

Numbers = Mapping[str, Any]


@dataclass(frozen=True)
class Quantity:
    """analysis: whose numbers; value: from them, or None where they do not have it."""

    analysis: str
    label: str
    value: Callable[[Numbers], float | None]
    scale: float = 1.0
    digits: int = 2

    def of(self, details: Mapping[str, Any]) -> float | None:
        """From a run's details; None where the run was not analysed."""
        found = details.get(self.analysis)
        return None if found is None else self.value(found["numbers"])

    def show(self, value: float) -> str:
        return f"{value * self.scale:,.{self.digits}f}"


def _ablation_gap(numbers: Numbers) -> float | None:
    if numbers["first"] is None:
        return None
    return float(np.mean(numbers["random"]) - np.mean(numbers["first"]))


def _routing(bin: str) -> Callable[[Numbers], float | None]:
    def value(numbers: Numbers) -> float | None:
        column = numbers["bins"].index(bin)
        ratios = [row[column] for row in numbers["ratios"]]
        if None in ratios:  # no word of the bin
            return None
        return spearman(np.array(numbers["timescales"]), np.array(ratios))

    return value


WAITING = Quantity(
    "reference-times", "units that reset late, %", lambda n: float(np.mean(n["later"])), 100, 0
)
ABLATION = Quantity(
    "unit-ablation",
    "accuracy without units at random - without those that reset late, mean over the numbers of units, %",
    _ablation_gap,
    100,
    1,
)
EXPONENT = Quantity("learned-p", "mean p", lambda n: float(np.mean(n["p"][-1])))
FIT = Quantity(
    "timescale-fit",
    "distance to a narrow Gaussian - to an inverse gamma (Kolmogorov-Smirnov)",
    lambda n: n["mean_statistic"] - n["alpha_statistic"],
    digits=3,
)


def routing(bin: str) -> Quantity:
    """How the words of a bin lose more without units of longer timescales."""
    label = f"rank correlation of a group's timescale and what words {bin} lose without it"
    return Quantity("routing", label, _routing(bin))
