"""Timescales from the biases alone, without data (Ohno et al. 2022, section 5; figure 5 at a single point in
time)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.numbers import short
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_BIAS
from .probes.plot_timescales import ASSIGNED, BIASES, PANEL, finish, frame, points
from .probes.subject import Subject
from .probes.timescale import assigned_timescales, bias_timescales, unit_of_biases

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class BiasTimescales(Finding):
    """One array [H] per layer: timescales from the biases, and the assigned ones (None if there are none).
    unit: of the timescales."""

    label: str
    biases: list[np.ndarray]
    assigned: list[np.ndarray | None]
    unit: str

    def table(self) -> list[Row]:
        return [
            {
                "layer": number,
                "unit": unit,
                "timescale_bias": values[unit],
                "timescale_assigned": None if given is None else given[unit],
            }
            for number, (values, given) in enumerate(
                zip(self.biases, self.assigned, strict=True), 1
            )
            for unit in range(len(values))
        ]

    def text(self) -> str:
        parts = []
        for number, values in enumerate(self.biases, 1):
            over = int((values > 10).sum())
            parts.append(
                f"Layer {number}: the biases alone give timescales of {short(values.min())} to "
                f"{short(values.max())} {self.unit}, median {short(float(np.median(values)))}; {over} of "
                f"{len(values)} units exceed 10."
            )
        return " ".join(parts)

    def draw(self, *others: BiasTimescales):
        return draw_bias_timescales(self)


@register_analysis(
    "bias-timescales",
    "Timescales of the units, from their biases",
    "Ohno et al. 2022, figure 5; Mahto et al. 2021, section 2.3",
    needs=(FORGET_BIAS,),
)
def biases(subject: Subject, settings: NoSettings) -> BiasTimescales:
    """Computes -1 / log phi(b_f) for every unit."""
    found = [bias_timescales(layer) for layer in subject.layers]
    return BiasTimescales(
        subject.label,
        [values for values in found if values is not None],
        [assigned_timescales(layer) for layer in subject.layers],
        unit_of_biases(subject).name,
    )


def draw_bias_timescales(found: BiasTimescales) -> Figure:
    """Plots the units in the order of their biases."""
    made, axes = style.figure(len(found.biases), PANEL, top=0.6)
    pairs = zip(axes, found.biases, found.assigned, strict=True)
    for number, (axis, values, given) in enumerate(pairs, 1):
        order = np.argsort(-values)
        points(axis, values[order], BIASES, r"$-1/\log\,\phi(b_f)$", "x")
        if given is not None:
            axis.plot(given[order], color=ASSIGNED, linewidth=1.2, label="assigned")
        frame(axis, f"layer {number}", "units, longest first")
    return finish(made, axes, f"{found.label}: timescales from the biases alone", found.unit)
