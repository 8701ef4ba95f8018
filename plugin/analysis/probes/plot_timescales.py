"""Plots one panel per layer with one point per unit and timescales on a logarithmic axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...common import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (2.5, 2.3)
GATES, BIASES, ASSIGNED = style.KINDS[0], style.KINDS[1], style.INK


def points(axis: Axes, values: np.ndarray, color: str, label: str, marker: str) -> None:
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    axis.plot(
        np.arange(len(values)), shown, marker, color=color, markersize=2.6, alpha=0.75, label=label
    )


def frame(axis: Axes, title: str, below: str) -> None:
    style.log_values(axis)
    axis.set_title(title, fontsize=8.5, color=style.INK)
    axis.set_xlabel(below, fontsize=9)


def finish(made: Figure, axes: list[Axes], title: str, unit: str) -> Figure:
    axes[0].set_ylabel(f"timescale, {unit}", fontsize=9)
    seen: set[str] = set()
    for axis in axes:  # each kind appears in one legend only
        handles, labels = axis.get_legend_handles_labels()
        new = [(h, l) for h, l in zip(handles, labels, strict=True) if l not in seen]
        seen.update(labels)
        if new:
            axis.legend(*zip(*new, strict=True), frameon=False, fontsize=7.5, loc="upper right")
    style.title(made, title)
    return made
