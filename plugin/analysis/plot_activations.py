"""The picture of the gate activations: every primitive of `ops` that serves as a gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..common import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .activations import Activations


def draw_gates(found: Activations) -> Figure:
    """Value and slope against the pre-activation z, and the slope that is left as the gate opens."""
    made, (value, slope, left) = style.figure(3, (2.15, 2.1), right=0.25, share=False)
    lines = zip(found.gates.items(), style.cycle_kinds(), style.cycle_dashes(), strict=False)
    for (name, gate), color, dash in lines:
        line: dict[str, Any] = dict(color=color, linestyle=dash, linewidth=1.8, label=name)
        value.plot(found.z, gate.value, **line)
        slope.plot(found.z, gate.slope, **line)
        left.plot(found.shut, gate.opening, **line)
    for axis, quantity in ((value, "gate value v"), (slope, "slope dv/dz")):
        axis.set(xlabel="pre-activation z", ylabel=quantity, xticks=range(-6, 7, 3))
    left.set(xlabel="distance from open, 1 - v", ylabel="slope dv/dz", ylim=(1e-8, 1))
    left.set_xscale("log")
    left.set_yscale("log")
    left.invert_xaxis()
    for axis in (value, slope, left):
        axis.xaxis.label.set_fontsize(9)
        axis.yaxis.label.set_fontsize(9)
    value.legend(frameon=False, fontsize=7.5, loc="upper left", handlelength=2.4)
    style.title(made, "gate activations")
    return made
