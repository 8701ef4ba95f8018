"""The picture of the simulated decay: on plain axes as in the paper, and on logarithmic ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .decay_simulation import DecaySimulation

PANEL = (2.6, 2.2)


def draw_decay_simulation(found: DecaySimulation) -> Figure:
    made, (plain, logs) = style.figure(2, PANEL, right=1.8, share=False)
    t = np.arange(len(found.formula))
    for axis, at in ((plain, t), (logs, t + 1)):
        axis.plot(
            at, found.exponential, color=style.KINDS[0], linewidth=1.8,
            label=rf"exponential, $f_0$ = {found.f0:g}",
        )  # fmt: skip
        axis.plot(
            at, found.power_law, color=style.KINDS[2], linewidth=1.8, linestyle=style.DASHES[1],
            label=f"power law, p = {found.p:g}",
        )  # fmt: skip
        axis.set_ylabel("share of the value left", fontsize=9)
    plain.set_xlabel("steps t", fontsize=9)
    plain.set_ylim(0, 1.03)
    logs.set(xscale="log", yscale="log")
    logs.set_xlabel("steps t + 1", fontsize=9)
    style.legend_right(logs)
    style.title(made, "decay of a stored value when nothing is written")
    return made
