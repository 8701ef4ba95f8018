"""Findings with one number per bin and an interval: accuracy by length, perplexity by frequency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...common import style
from .base import Finding, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "osD^v"


@dataclass(frozen=True)
class Bin:
    """count: sequences or words in the bin. value: None if it is empty. low, high: 95% interval, if known."""

    label: str
    count: int
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Binned(Finding):
    """Bins in drawing order. A subclass names the axes."""

    label: str
    bins: list[Bin]

    quantity: ClassVar[str] = ""  # what is measured: "accuracy"
    by: ClassVar[str] = ""  # the binned quantity: "length of the sequence, steps"
    counted: ClassVar[str] = ""  # what is counted in a bin: "sequences"
    title: ClassVar[str] = ""
    log: ClassVar[bool] = False
    percent: ClassVar[bool] = False

    def table(self) -> list[Row]:
        return [
            {
                "bin": b.label,
                self.counted: b.count,
                self.quantity: b.value,
                "low": b.low,
                "high": b.high,
            }
            for b in self.bins
        ]

    def text(self) -> str:
        there = [b for b in self.bins if b.value is not None]
        if not there:
            return "All bins are empty."
        best = max(there, key=self._goodness)
        worst = min(there, key=self._goodness)
        total = sum(b.count for b in self.bins)
        if best is worst:
            return f"{total:,} {self.counted}, all in one bin: {self._named(best)}."
        apart = (
            " Their 95% intervals do not overlap."
            if _apart(best, worst)
            else " Their 95% intervals overlap, or are not known."
        )
        return f"The best {self.quantity} is {self._named(best)}, the worst {self._named(worst)}.{apart}"

    def _goodness(self, b: Bin) -> float:
        assert b.value is not None
        return -b.value if self.log else b.value

    def _named(self, b: Bin) -> str:
        assert b.value is not None
        value = f"{b.value:.1%}" if self.percent else f"{b.value:,.4g}"
        return f"{value} in the bin {b.label} ({b.count:,} {self.counted})"

    def draw(self, *others: Binned):
        return draw_intervals([self, *others])


def _apart(a: Bin, b: Bin) -> bool:
    known: Sequence[float | None] = (a.low, a.high, b.low, b.high)
    if any(end is None for end in known):
        return False
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    return a.high < b.low or b.high < a.low


def draw_intervals(found: Sequence[Binned]) -> Figure:
    """Draws each model in its own colour and marker, with the count of each bin below the bin's label."""
    first = found[0]
    labels = list(dict.fromkeys(b.label for one in found for b in one.bins))
    made, (axis,) = style.figure(
        1, (max(3.3, 0.62 * len(labels)), 2.5), right=1.6 if len(found) > 1 else 0.2, bottom=0.95
    )
    place = {label: i for i, label in enumerate(labels)}
    spread = 0.5 / max(1, len(found))
    for i, (one, color, mark) in enumerate(
        zip(found, style.cycle_kinds(), MARKS * len(found), strict=False)
    ):
        there = [b for b in one.bins if b.value is not None]
        scale = 100.0 if one.percent else 1.0
        x = np.array([place[b.label] for b in there]) + (i - (len(found) - 1) / 2) * spread
        y = scale * np.array([b.value for b in there], dtype=float)
        low = scale * np.array([np.nan if b.low is None else b.low for b in there], dtype=float)
        high = scale * np.array([np.nan if b.high is None else b.high for b in there], dtype=float)
        reach = np.nan_to_num(np.maximum([y - low, high - y], 0))
        axis.errorbar(
            x, y, reach, fmt=mark, color=color, markersize=4.5, capsize=2.5, linewidth=1.3,
            label=one.label,
        )  # fmt: skip
    counts = {b.label: b.count for b in first.bins}
    names = [f"{label}\n{counts.get(label, 0):,}" for label in labels]
    axis.set_xticks(range(len(labels)), names, rotation=0 if len(labels) < 7 else 40, fontsize=7.5)
    axis.set_xlim(-0.6, len(labels) - 0.4)
    axis.set_xlabel(f"{first.by}\n(under each: {first.counted}; bars: 95% intervals)", fontsize=9)
    axis.set_ylabel(f"{first.quantity}{', %' if first.percent else ''}", fontsize=9)
    if first.log:
        style.log_values(axis)
    if len(found) > 1:
        style.legend_right(axis)
    name = f"{first.label}: " if len(found) == 1 else ""
    style.title(made, f"{name}{first.title}")
    return made
