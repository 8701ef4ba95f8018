"""The picture of the toy problem: distance from open against time, descent as marks on the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .toy_dynamics import ToyDynamics

PANEL = (3.3, 2.6)
MARKS = 14  # along a line


def draw_toy_dynamics(found: ToyDynamics) -> Figure:
    made, (axis,) = style.figure(1, PANEL, right=1.6)
    lines = zip(found.curves.items(), style.cycle_kinds(), style.cycle_dashes(), strict=False)
    for (name, curve), color, dash in lines:
        late = curve.tau > 0
        tau = curve.tau[late]
        axis.plot(tau, curve.flow[late], color=color, linestyle=dash, linewidth=1.6, label=name)
        every = max(1, len(tau) // MARKS)
        axis.plot(
            tau[::every], curve.descent[late][::every], "o", color=color, markersize=3.2,
            markerfacecolor="white", label="by descent" if name == list(found.curves)[-1] else None,
        )  # fmt: skip
    axis.set(xscale="log", yscale="log")
    axis.set_xlabel(r"updates, or time $\tau$ of the flow", fontsize=9)
    axis.set_ylabel("distance from open, $1 - f$", fontsize=9, labelpad=1)
    style.legend_right(axis, title="gate (lines: flow)")
    style.title(made, r"learning to keep: $L = |f^{10} - 1|$")
    return made
