"""How fast gradient descent opens a gate: the toy problem of tasks/toy.py (Ohno et al. 2022, figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..common import style
from ..config import setting
from ..tasks.toy import GATES, Curve, rate_exponent, toy_curves
from .findings.base import Finding, Row, register_analysis
from .probes.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (3.3, 2.6)
MARKS = 14  # markers per line

LATE = 0.1  # the exponent is fitted after this share of the updates


@dataclass(frozen=True)
class ToySettings:
    """settings of the toy problem"""

    toy_updates: int = setting(20_000, "updates of gradient descent, learning rate 1")
    toy_points: int = setting(120, "number of times at which the curves are recorded")


@dataclass(frozen=True)
class ToyDynamics(Finding):
    """curves: 1 - f of each gate under gradient descent and under gradient flow. exponents: the final slopes on
    log-log axes."""

    label: str
    curves: dict[str, Curve]
    exponents: dict[str, float]

    def table(self) -> list[Row]:
        return [
            {"gate": name, "tau": int(tau), "descent": a, "flow": b}
            for name, curve in self.curves.items()
            for tau, a, b in zip(curve.tau, curve.descent, curve.flow, strict=True)
        ]

    def text(self) -> str:
        order = sorted(self.curves, key=lambda name: self.curves[name].flow[-1])
        tau = int(self.curves[order[0]].tau[-1])
        parts = [
            f"{name} {self.curves[name].flow[-1]:.2g} (falling as tau^{self.exponents[name]:.2f})"
            for name in order
        ]
        return (
            f"Distance 1 - f of the gate from open at tau = {tau:,} of the gradient flow: "
            f"{', '.join(parts)}."
        )

    def draw(self, *others: ToyDynamics):
        return draw_toy_dynamics(self)


@register_analysis(
    "toy",
    "How fast a gate learns to stay open",
    "Ohno et al. 2022, figure 2",
    settings=ToySettings,
    bare=True,
)
def toy_dynamics(subject: Subject, settings: ToySettings) -> ToyDynamics:
    """No model is needed."""
    curves = toy_curves(settings.toy_updates, settings.toy_points, tuple(GATES))
    exponents = {
        name: rate_exponent(curve.tau, curve.flow, LATE * settings.toy_updates)
        for name, curve in curves.items()
    }
    return ToyDynamics("", curves, exponents)


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
