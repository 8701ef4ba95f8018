"""The picture of the gate activations: every primitive of `ops` that serves as a gate."""

from __future__ import annotations

import math
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from ..cells.ops import PRIMITIVES, NumpyOps
from . import style


def plot_gates(path: str | Path) -> Path:
    """Value and slope against the pre-activation z, and the slope that is left as the gate opens.

    The last panel is what decides how fast a gate can be trained towards long timescales (Ohno et al. 2022):
    at equal distance 1 - v from fully open, the gate with the larger slope moves on faster.
    """
    made, (value, slope, left) = style.figure(3, (2.15, 2.1), right=0.25, share=False)
    gates = {name: p for name, p in PRIMITIVES.items() if p.bias_for and p.derivative}
    z = np.linspace(-6, 6, 241)
    shut = np.geomspace(0.5, 1e-6, 121)  # 1 - v
    for (name, gate), color, dash in zip(
        gates.items(), cycle(style.KINDS), cycle(style.DASHES), strict=False
    ):
        assert gate.derivative is not None and gate.bias_for is not None
        activation = getattr(NumpyOps, name)
        line: dict[str, Any] = dict(color=color, linestyle=dash, linewidth=1.8, label=name)
        value.plot(z, activation(z), **line)
        slope.plot(z, gate.derivative(NumpyOps, (z,), activation(z), 1.0)[0], **line)
        at = np.array([gate.bias_for(math.log1p(-x) - math.log(x)) for x in shut])
        left.plot(shut, gate.derivative(NumpyOps, (at,), activation(at), 1.0)[0], **line)
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
    return style.save(made, path)
