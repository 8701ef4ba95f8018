"""The picture of the exponents: a histogram a layer, later-reset units told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .learned_p import LearnedP

PANEL = (2.7, 2.2)
BINS = 20
HATCHES = ("////", "")  # kinds are told apart without colour, too


def draw_learned_p(found: LearnedP) -> Figure:
    """Bars stand on one another, so that their height is all units."""
    made, axes = style.figure(len(found.p), PANEL, right=1.5, top=0.6)
    edges = np.linspace(0, max(1.0, *(float(p.max()) for p in found.p)), BINS + 1)
    for number, (axis, p) in enumerate(zip(axes, found.p, strict=True), 1):
        if found.later is not None and number == found.later_layer:
            parts = [p[found.later], p[~found.later]]
            names = [f"later-reset ({len(parts[0])})", f"other units ({len(parts[1])})"]
            colors = [style.KINDS[1], style.KINDS[0]]
        else:
            parts, names, colors = [p], [f"all units ({len(p)})"], [style.KINDS[0]]
        below = np.zeros(BINS)
        for part, name, color, hatch in zip(parts, names, colors, HATCHES, strict=False):
            height, _ = np.histogram(part, edges)
            axis.bar(
                edges[:-1], height, np.diff(edges), below, align="edge", color=color, label=name,
                edgecolor="white", linewidth=0.5, hatch=hatch if len(parts) > 1 else "",
            )  # fmt: skip
            below += height
        axis.axvline(p.mean(), color=style.INK, linewidth=1, linestyle=style.DASHES[1])
        axis.annotate(
            f"mean {p.mean():.2f}", (p.mean(), 1), (3, -2), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", fontsize=7.5, va="top", color=style.INK,
        )  # fmt: skip
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("exponent p", fontsize=9)
    axes[0].set_ylabel("units", fontsize=9)
    style.legend_right(axes[-1], *axes)
    style.title(made, f"{found.label}: {'learned' if found.learned else 'fixed'} exponents")
    return made
