"""Timescales of the units, measured on data (probes/timescale.py has the definitions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.numbers import short
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.plot_timescales import ASSIGNED, BIASES, GATES, PANEL, finish, frame, points
from .probes.subject import Subject
from .probes.timescale import assigned_timescales, bias_timescales, measured, unit_of_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LayerTimescales:
    """Arrays [H]; biases and assigned may be None. mean_gate: the mean f from which `gates` is computed."""

    gates: np.ndarray
    mean_gate: np.ndarray
    biases: np.ndarray | None
    assigned: np.ndarray | None

    def rank_correlation(self) -> float | None:
        """Spearman's correlation of assigned and measured timescales; None if there is nothing to rank."""
        if self.assigned is None or len(np.unique(self.assigned)) < 2:
            return None
        return spearman(self.assigned, self.gates)


@dataclass(frozen=True)
class Timescales(Finding):
    """One entry per layer. steps: the number of steps averaged over. unit: of the timescales."""

    label: str
    steps: int
    layers: list[LayerTimescales]
    unit: str

    def table(self) -> list[Row]:
        return [
            {
                "layer": number,
                "unit": unit,
                "timescale_gates": layer.gates[unit],
                "mean_forget_gate": layer.mean_gate[unit],
                "timescale_bias": None if layer.biases is None else layer.biases[unit],
                "timescale_assigned": None if layer.assigned is None else layer.assigned[unit],
            }
            for number, layer in enumerate(self.layers, 1)
            for unit in range(len(layer.gates))
        ]

    def text(self) -> str:
        parts = []
        for number, layer in enumerate(self.layers, 1):
            low, middle, high = np.quantile(layer.gates, [0.1, 0.5, 0.9], method="lower")
            part = (
                f"Layer {number}: half of the {len(layer.gates)} units have a timescale below "
                f"{short(middle)} {self.unit}, the slowest tenth one above {short(high)} and the fastest "
                f"tenth one below {short(low)}"
            )
            rank = layer.rank_correlation()
            if rank is not None:
                part += f"; measured and assigned timescales have a rank correlation of {rank:.2f}"
            parts.append(part + ".")
        return f"Means over {self.steps:,} steps. " + " ".join(parts)

    def draw(self, *others: Timescales):
        return draw_timescales(self)


@register_analysis(
    "timescales",
    "Timescales of the units, measured",
    "Mahto et al. 2021, A.2 and figure 4",
    needs=(FORGET_FACTOR,),
)
def timescales(subject: Subject, settings: NoSettings) -> Timescales:
    """Measures timescales from the gates on data; also returns those from the biases and the assigned ones."""
    found = []
    layers = zip(subject.layers, measured(subject), subject.factors, strict=True)
    for layer, times, factors in layers:
        found.append(
            LayerTimescales(
                times,
                factors[subject.valid].mean(axis=0),
                bias_timescales(layer),
                assigned_timescales(layer),
            )
        )
    unit = unit_of_time(subject).name
    return Timescales(subject.label, int(subject.valid.sum()), found, unit)


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation; ties share their mean rank. None if one of the arrays is constant."""
    x, y = _ranks(a), _ranks(b)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def draw_timescales(found: Timescales) -> Figure:
    """Plots the units in the order of their assigned timescales or, if there are none, of the measured ones."""
    made, axes = style.figure(len(found.layers), PANEL, top=0.6)
    for number, (axis, layer) in enumerate(zip(axes, found.layers, strict=True), 1):
        order = np.argsort(-(layer.gates if layer.assigned is None else layer.assigned))
        if layer.biases is not None and layer.assigned is None:
            points(axis, layer.biases[order], BIASES, "from the bias alone", "x")
        points(axis, layer.gates[order], GATES, "from the gates, on data", "o")
        if layer.assigned is not None:
            axis.plot(layer.assigned[order], color=ASSIGNED, linewidth=1.2, label="assigned")
        how = "assigned" if layer.assigned is not None else "measured"
        frame(axis, f"layer {number}", f"units, by {how} timescale")
    return finish(made, axes, f"{found.label}: timescales of the units", found.unit)
