"""The picture of the alphas: what each assigns, and how good the models are that were trained with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .alpha_sweep import AlphaSweep

PANEL = (3.0, 2.5)


def draw_alpha_sweep(found: Sequence[AlphaSweep]) -> Figure:
    """One model: the assigned curves with its own timescales. Several with an alpha: their scores, too."""
    scored = sorted((one.alpha, one.score) for one in found if one.alpha is not None)
    made, axes = style.figure(1 + (len(scored) > 1), PANEL, right=1.55, top=0.5, share=False)
    first, curves = found[0], axes[0]
    units = np.arange(1, first.curves.shape[1] + 1)
    for color, alpha, curve in zip(
        style.ordered(len(first.alphas)), first.alphas, first.curves, strict=True
    ):
        curves.plot(units, curve, color=color, linewidth=1.3, label=rf"$\alpha$ = {alpha:g}")
    shown = np.where(np.isfinite(first.measured), first.measured, np.nan)
    curves.plot(units, shown, ".", color=style.KINDS[1], markersize=3, label="measured")
    style.log_values(curves)
    curves.set_xlabel(f"units of layer {first.layer}, longest timescale first", fontsize=9)
    curves.set_ylabel("timescale, steps", fontsize=9)
    if len(scored) > 1:
        alphas, scores = zip(*scored, strict=True)
        axes[1].plot(alphas, scores, "o-", color=style.KINDS[0], markersize=4, linewidth=1.4)
        axes[1].set_xlabel(r"$\alpha$ that the model was trained with", fontsize=9)
        axes[1].set_ylabel(first.metric, fontsize=9)
    style.legend_right(axes[-1], curves)
    style.title(made, f"{first.label}: timescales assigned by each alpha")
    return made
