"""The pictures of the units' timescales: sorted, layer by layer, with what was assigned beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .bias_timescales import BiasTimescales
    from .timescales import Timescales

PANEL = (2.5, 2.3)
GATES, BIASES, ASSIGNED = style.KINDS[0], style.KINDS[1], style.INK


def draw_timescales(found: Timescales) -> Figure:
    """Units in the order of their assigned timescale, or of the measured one where none is assigned."""
    made, axes = style.figure(len(found.layers), PANEL, top=0.6)
    for number, (axis, layer) in enumerate(zip(axes, found.layers, strict=True), 1):
        order = np.argsort(-(layer.gates if layer.assigned is None else layer.assigned))
        if layer.biases is not None and layer.assigned is None:
            _points(axis, layer.biases[order], BIASES, "from the bias alone", "x")
        _points(axis, layer.gates[order], GATES, "from the gates, on data", "o")
        if layer.assigned is not None:
            axis.plot(layer.assigned[order], color=ASSIGNED, linewidth=1.2, label="assigned")
        how = "assigned" if layer.assigned is not None else "measured"
        _frame(axis, f"layer {number}", f"units, by {how} timescale")
    return _finish(made, axes, f"{found.label}: timescales of the units")


def draw_bias_timescales(found: BiasTimescales) -> Figure:
    """Units in the order of their bias."""
    made, axes = style.figure(len(found.biases), PANEL, top=0.6)
    pairs = zip(axes, found.biases, found.assigned, strict=True)
    for number, (axis, values, given) in enumerate(pairs, 1):
        order = np.argsort(-values)
        _points(axis, values[order], BIASES, r"$-1/\log\,\phi(b_f)$", "x")
        if given is not None:
            axis.plot(given[order], color=ASSIGNED, linewidth=1.2, label="assigned")
        _frame(axis, f"layer {number}", "units, longest first")
    return _finish(made, axes, f"{found.label}: timescales from the biases alone")


def _points(axis: Axes, values: np.ndarray, color: str, label: str, marker: str) -> None:
    shown = np.where(np.isfinite(values) & (values > 0), values, np.nan)
    axis.plot(
        np.arange(len(values)), shown, marker, color=color, markersize=2.6, alpha=0.75, label=label
    )


def _frame(axis: Axes, title: str, below: str) -> None:
    style.log_values(axis)
    axis.set_title(title, fontsize=8.5, color=style.INK)
    axis.set_xlabel(below, fontsize=9)


def _finish(made: Figure, axes: list[Axes], title: str) -> Figure:
    axes[0].set_ylabel("timescale, steps", fontsize=9)
    seen: set[str] = set()
    for axis in axes:  # each kind is named once
        handles, labels = axis.get_legend_handles_labels()
        new = [(h, l) for h, l in zip(handles, labels, strict=True) if l not in seen]
        seen.update(labels)
        if new:
            axis.legend(*zip(*new, strict=True), frameon=False, fontsize=7.5, loc="upper right")
    style.title(made, title)
    return made
