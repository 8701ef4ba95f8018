"""Plots decay curves: one line per unit, models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...common import style
from .decay import DecayCurves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (3.1, 2.7)


def plot_decay_curves(
    curves: DecayCurves | Sequence[DecayCurves],
    path: str | Path,
    title: str = "how long the units remember",
    floor: float = 1e-3,
) -> Path:
    """Draws the curves and writes the figure to `path`."""
    return style.save(draw_decay_curves(curves, title, floor), path)


def draw_decay_curves(
    curves: DecayCurves | Sequence[DecayCurves],
    title: str = "how long the units remember",
    floor: float = 1e-3,
) -> Figure:
    """Plots S_n of all units on log-log axes, with one labelled panel for each of `curves`.

    The colour of a unit shows its timescale (steps until S_n < 1/e), on one scale for all panels. Units that
    stay above 1/e over all measured steps get the colour of the longest timescale. The thick line is the median
    unit. Shares below `floor` are cut off.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    panels = [curves] if isinstance(curves, DecayCurves) else list(curves)
    if not panels:
        raise ValueError("curves is empty; accepted: DecayCurves, or a list of them")
    longest = float(max(panel.steps[-1] for panel in panels))
    colors = LinearSegmentedColormap.from_list("timescale", style.ordered(64))
    scale = ScalarMappable(LogNorm(0.5, max(longest, 1.0)), colors)
    made, axes = style.figure(len(panels), PANEL, right=1.0, top=0.74)
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, panel, scale, floor)
        axis.set_xlim(1, max(longest, 2.0))
        axis.set_ylim(floor, 1.3)
    axes[0].set_ylabel("share of the memory left, $S_n$", fontsize=9)
    style.color_bar(made, axes[-1], scale, "timescale of the unit, steps")
    style.title(made, title)
    return made


def _panel(axis: Axes, panel: DecayCurves, scale: object, floor: float) -> None:
    from matplotlib.cm import ScalarMappable

    assert isinstance(scale, ScalarMappable)
    times = panel.timescales()
    colors = scale.to_rgba(np.minimum(times, panel.steps[-1]))
    for unit in np.argsort(times):  # the longest are drawn last, on top
        shown = np.maximum(panel.survival[unit], floor * 1e-2)
        axis.plot(panel.steps, shown, color=colors[unit], linewidth=0.8, alpha=0.6)
    middle = np.median(panel.survival, axis=0)
    axis.plot(panel.steps, middle, color="white", linewidth=4.2)
    axis.plot(panel.steps, middle, color=style.KINDS[1], linewidth=2.2, label="median unit")
    axis.set_xscale("log")
    axis.set_yscale("log")
    style.level(axis, 1 / np.e, "1/e")
    axis.set_title(f"{panel.label}\n{_summary(panel, times)}", fontsize=8.5, color=style.INK)
    axis.set_xlabel("steps n", fontsize=9)
    axis.legend(facecolor="white", edgecolor="none", framealpha=0.9, fontsize=8, loc="lower left")


def _summary(panel: DecayCurves, times: np.ndarray) -> str:
    """Describes the timescales by their median and 90th percentile."""
    steps = [
        f"over {panel.steps[-1]}"
        if np.isinf(time)
        else f"{time:.1f}"
        if time < 10
        else f"{time:.0f}"
        for time in np.quantile(times, [0.5, 0.9], method="lower")
    ]
    return f"timescale: median {steps[0]}, slowest tenth from {steps[1]} steps"
