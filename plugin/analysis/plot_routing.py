"""The picture of routing: ratio of perplexities against the timescale of the silenced group, a line a bin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from .timescales import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .routing import Routing

PANEL = (4.6, 2.6)
MARKS = "osD^v"


def draw_routing(found: Routing) -> Figure:
    """Longest timescale at the left, as in the paper."""
    made, (axis,) = style.figure(1, PANEL, right=1.5, bottom=0.75)
    at = np.arange(len(found.timescales))
    lines = zip(found.bins, style.cycle_kinds(), style.cycle_dashes(), MARKS, strict=False)
    for b, (name, color, dash, mark) in enumerate(lines):
        if not found.words[b]:
            continue
        thick = 2.0 if name == "all" else 1.3
        axis.plot(
            at, found.ratios[:, b], mark, linestyle=dash, color=style.INK if name == "all" else color,
            markersize=3.5, linewidth=thick, label=name,
        )  # fmt: skip
    axis.axhline(1, color=style.FAINT, linewidth=0.9)
    every = max(1, len(at) // 12)
    names = [short(t) for t in found.timescales[::every]]
    axis.set_xticks(at[::every], names, rotation=45, ha="right", fontsize=7.5)
    axis.set_xlabel(
        f"mean timescale of the {found.group} silenced units of layer {found.layer}, steps",
        fontsize=9,
    )
    axis.set_ylabel("perplexity without / with them", fontsize=9)
    style.legend_right(axis, title="training count")
    style.title(made, f"{found.label}: which words need which timescales")
    return made
