"""How a stored value decays when nothing new is written: exponentially or as a power law.

    c_t = f0 c_{t-1}                       LSTM, f0 = .97
    c_t = ((t + 1) / t)^-p c_{t-1}         power-law LSTM, p = .3: c_t = (t + 1)^-p

over 200 steps (Chien et al. 2021, figure 1). Both curves are computed by the cells' programs, the power law
with its reset gate closed. Because of the cell's eps the result is not exactly (t + 1)^-p.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..cells import get_cell
from ..common import style
from ..config import setting
from .findings.base import Finding, Row, register_analysis
from .probes.forgetting import forgetting_curves
from .probes.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (2.6, 2.2)

SHUT = 1e-12  # value of the reset gate


@dataclass(frozen=True)
class SimulationSettings:
    """settings of the simulation"""

    f0: float = setting(0.97, "forget gate of the exponential decay")
    exponent: float = setting(0.3, "p of the power law")
    simulated_steps: int = setting(200, "steps")


@dataclass(frozen=True)
class DecaySimulation(Finding):
    """Arrays [N]: the share left after steps 0 .. N-1. formula: the exact (t + 1)^-p."""

    label: str
    f0: float
    p: float
    exponential: np.ndarray
    power_law: np.ndarray
    formula: np.ndarray

    def table(self) -> list[Row]:
        return [
            {"step": t, "exponential": a, "power_law": b, "formula": c}
            for t, (a, b, c) in enumerate(
                zip(self.exponential, self.power_law, self.formula, strict=True)
            )
        ]

    def text(self) -> str:
        last = len(self.formula) - 1
        crossing = np.flatnonzero(self.power_law[1:] > self.exponential[1:])
        where = f"from step {crossing[0] + 1} on" if len(crossing) else "at no step"
        return (
            f"After {last} steps {self.exponential[-1]:.2g} of the value is left with a forget gate "
            f"of {self.f0:g}, and {self.power_law[-1]:.2g} with a power law of p = {self.p:g}, which "
            f"keeps more {where}. The cell differs from (t + 1)^-p by at most "
            f"{np.abs(self.power_law - self.formula).max():.1g}."
        )

    def draw(self, *others: DecaySimulation):
        return draw_decay_simulation(self)


@register_analysis(
    "decay-simulation",
    "Exponential and power-law decay",
    "Chien et al. 2021, figure 1",
    settings=SimulationSettings,
    bare=True,
)
def decay_simulation(subject: Subject, settings: SimulationSettings) -> DecaySimulation:
    """No model is needed."""
    steps = settings.simulated_steps
    lstm = forgetting_curves(get_cell("lstm"), steps, gates={"f": settings.f0})
    power = forgetting_curves(
        get_cell("plstm"), steps, gates={"r": SHUT}, vectors={"p": settings.exponent}
    )
    return DecaySimulation(
        "",
        settings.f0,
        settings.exponent,
        np.concatenate([[1.0], lstm]),
        np.concatenate([[1.0], power]),
        np.arange(1.0, steps + 2) ** -settings.exponent,
    )


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
