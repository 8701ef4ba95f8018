"""The picture of a replaced word: what is left of the difference, by layer and by group of units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from .timescales import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .word_ablation import WordAblation

PANEL = (2.9, 2.6)
FLOOR = 1e-4


def draw_word_ablation(found: WordAblation) -> Figure:
    """Log-log, so that step 0 (where it is 1) stands at n = 1."""
    panels = 1 + bool(found.groups)
    made, axes = style.figure(panels, PANEL, right=1.6, top=0.6)
    for number, (curve, color, dash) in enumerate(
        zip(found.layers, style.cycle_kinds(), style.cycle_dashes(), strict=False), 1
    ):
        _line(axes[0], curve, color, dash, f"layer {number}")
    axes[0].set_title("by layer", fontsize=8.5, color=style.INK)
    axes[0].legend(frameon=False, fontsize=7.5, loc="lower left")
    if found.groups:
        colors = style.ordered(len(found.groups))
        for group, color in zip(found.groups, colors, strict=True):
            _line(
                axes[1], group.decay, color, "-", f"{short(group.timescale)} ({group.units} units)"
            )
        whole = found.layers[(found.group_layer or 1) - 1]
        _line(axes[1], whole, style.KINDS[1], style.DASHES[1], "all units")
        axes[1].set_title(f"layer {found.group_layer}, by timescale", fontsize=8.5, color=style.INK)
        style.legend_right(axes[1], title="mean timescale, steps")
    curves = np.concatenate([found.layers.ravel(), *(g.decay for g in found.groups)])
    there = curves[np.isfinite(curves) & (curves > 0)]
    least, most = (there.min(), there.max()) if len(there) else (FLOOR, 1.0)
    for axis in axes:
        axis.set(xscale="log", yscale="log")
        axis.set_xlabel("steps since the replaced word, n + 1", fontsize=9)
        axis.set_ylim(max(FLOOR, 0.5 * least), 1.5 * most)
    axes[0].set_ylabel(f"difference in {found.memory}, $D_n$", fontsize=9)
    style.title(made, f"{found.label}: what is left of one replaced word")
    return made


def _line(axis: Axes, curve: np.ndarray, color: str, dash, label: str) -> None:
    shown = np.where(curve > FLOOR / 10, curve, np.nan)
    axis.plot(
        np.arange(1, len(curve) + 1), shown, color=color, linestyle=dash, linewidth=1.4, label=label
    )
