"""The value and slope of every gate primitive, and the slope that remains as the gate approaches fully open.

The latter determines how fast a gate can learn long timescales (Ohno et al. 2022): at the same distance 1 - v
from fully open, the gate with the larger slope moves faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cells.tape.ops import PRIMITIVES, NumpyOps
from ..common import style
from .findings.base import Finding, NoSettings, Row, register_analysis
from .probes.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class GateCurve:
    """value, slope: at z. opening: the slope at the points where 1 - v equals `shut`."""

    value: np.ndarray
    slope: np.ndarray
    opening: np.ndarray


@dataclass(frozen=True)
class Activations(Finding):
    """One curve per gate, over the same z and the same distances 1 - v."""

    label: str
    z: np.ndarray
    shut: np.ndarray
    gates: dict[str, GateCurve]

    def table(self) -> list[Row]:
        return [
            {"gate": name, "z": z, "value": value, "slope": slope}
            for name, gate in self.gates.items()
            for z, value, slope in zip(self.z, gate.value, gate.slope, strict=True)
        ]

    def text(self) -> str:
        at = int(np.abs(self.shut - 1e-3).argmin())
        order = sorted(self.gates, key=lambda name: -self.gates[name].opening[at])
        parts = [f"{name} {self.gates[name].opening[at]:.2g}" for name in order]
        return f"At a distance of {self.shut[at]:.1g} from open the slopes are: {', '.join(parts)}."

    def draw(self, *others: Activations):
        return draw_gates(self)


def gate_curves() -> Activations:
    """Computes the curves of every primitive in `ops` that has an inverse and a derivative."""
    z = np.linspace(-6, 6, 241)
    shut = np.geomspace(0.5, 1e-6, 121)
    found = {}
    for name, gate in PRIMITIVES.items():
        if gate.bias_for is None or gate.derivative is None or gate.log:
            continue
        activation = getattr(NumpyOps, name)
        at = np.array([gate.bias_for(math.log1p(-x) - math.log(x)) for x in shut])
        found[name] = GateCurve(
            activation(z),
            gate.derivative(NumpyOps, (z,), activation(z), 1.0)[0],
            gate.derivative(NumpyOps, (at,), activation(at), 1.0)[0],
        )
    return Activations("", z, shut, found)


def plot_gates(path: str | Path) -> Path:
    """Draws the curves and writes them to `path`."""
    return style.save(gate_curves().draw(), path)


@register_analysis(
    "activations",
    "Activations of gates and their slopes",
    "Ohno et al. 2022, figure 1",
    bare=True,
)
def activations(subject: Subject, settings: NoSettings) -> Activations:
    """No model is needed."""
    return gate_curves()


def draw_gates(found: Activations) -> Figure:
    """Plots value and slope against the pre-activation z, and the slope that remains as the gate opens."""
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
