"""The picture of timescales over training: the median unit, the middle half and the longest of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .growth import Growth

PANEL = (2.6, 2.3)


def draw_growth(found: Sequence[Growth]) -> Figure:
    """One panel a layer; where several models are drawn, one colour a model."""
    layers = max(len(one.timescales) for one in found)
    made, axes = style.figure(layers, PANEL, right=1.5, top=0.6)
    for color, dash, one in zip(style.cycle_kinds(), style.cycle_dashes(), found, strict=False):
        for axis, values in zip(axes, one.timescales, strict=False):
            shown = np.where(np.isfinite(values), values, np.nan)
            low, middle, high = np.nanquantile(shown, [0.25, 0.5, 0.75], axis=1)
            name = one.label if len(found) > 1 else "median unit"
            axis.plot(one.updates, middle, color=color, linestyle=dash, linewidth=1.8, label=name)
            axis.fill_between(
                one.updates, low, high, color=color, alpha=0.18, linewidth=0, label="middle half"
            )
            longest = np.nanmax(shown, axis=1)
            axis.plot(one.updates, longest, ".", color=color, markersize=4, label="longest finite")
    for number, axis in enumerate(axes, 1):
        style.log_values(axis)
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("updates", fontsize=9)
        style.few_ticks(axis)
    axes[0].set_ylabel(f"timescale from the {found[0].source}, steps", fontsize=9)
    style.legend_right(axes[-1])
    name = f"{found[0].label}: " if len(found) == 1 else ""
    style.title(made, f"{name}timescales in training")
    return made
