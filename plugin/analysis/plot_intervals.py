"""The picture of a number a bin: points with 95% intervals, models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .findings.binned import Binned

MARKS = "osD^v"


def draw_intervals(found: Sequence[Binned]) -> Figure:
    """One colour and one mark a model; how much is in a bin stands under its name."""
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
