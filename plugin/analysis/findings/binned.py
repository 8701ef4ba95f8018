"""Findings that are a number a bin, with an interval: accuracy by length, perplexity by frequency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from .base import Finding, Row


@dataclass(frozen=True)
class Bin:
    """count: sequences or words in it; value None where there are none; low, high: 95%, where known."""

    label: str
    count: int
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Binned(Finding):
    """Bins in the order in which they are drawn. A subclass says what is on the axes."""

    label: str
    bins: list[Bin]

    quantity: ClassVar[str] = ""  # what is measured: "accuracy"
    by: ClassVar[str] = ""  # what the bins are of: "length of the sequence, steps"
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
            return "There is nothing in any bin."
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
        from ..plot_intervals import draw_intervals

        return draw_intervals([self, *others])


def _apart(a: Bin, b: Bin) -> bool:
    known: Sequence[float | None] = (a.low, a.high, b.low, b.high)
    if any(end is None for end in known):
        return False
    assert a.low is not None and a.high is not None and b.low is not None and b.high is not None
    return a.high < b.low or b.high < a.low
