"""The picture of reference times: k_t of every unit against t, the units that wait in another colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .reference_times import ReferenceTimes

PANEL = (3.0, 2.7)


def draw_reference_times(found: ReferenceTimes) -> Figure:
    """A panel a sequence; on the diagonal k = t a unit is reset at every step."""
    made, axes = style.figure(len(found.examples), PANEL, right=1.75, top=0.6)
    for axis, example in zip(axes, found.examples, strict=True):
        t = np.arange(1, len(example.k) + 1)
        axis.plot(t, t, color=style.FAINT, linewidth=0.9, linestyle=":", label="k = t")
        for later, color, name in (
            (False, style.KINDS[0], "other units"),
            (True, style.KINDS[1], "later-reset units"),
        ):
            units = np.flatnonzero(found.later == later)
            for i, unit in enumerate(units):
                label = f"{name} ({len(units)})" if not i else None
                axis.plot(t, example.k[:, unit], color=color, linewidth=0.7, alpha=0.6, label=label)
        axis.axvline(example.signal, color=style.INK, linewidth=0.9, linestyle=style.DASHES[1])
        axis.annotate(
            "signal", (example.signal, 0.98), (-3, 0), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", fontsize=7.5, ha="right", va="top", color=style.INK,
        )  # fmt: skip
        wait = example.signal - 1 - found.items
        axis.set_title(f"{found.items} symbols, T = {wait}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("step t", fontsize=9)
    axes[0].set_ylabel("reference time $k_t$, steps", fontsize=9)
    style.legend_right(axes[-1], axes[0])
    style.title(made, f"{found.label}: when the units of layer {found.layer} were last reset")
    return made
