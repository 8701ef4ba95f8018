"""The share of a memory that is left after n steps, measured on data. probes/decay.py computes the numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..common.numbers import short
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.decay import DecayCurves, decay_curves
from .probes.subject import Subject


@dataclass(frozen=True)
class UnitDecay(Finding):
    """The decay curves of every layer."""

    label: str
    curves: list[DecayCurves]

    def table(self) -> list[Row]:
        return [
            {"layer": number, "unit": unit, "steps": int(n), "left": left}
            for number, layer in enumerate(self.curves, 1)
            for unit, curve in enumerate(layer.survival)
            for n, left in zip(layer.steps, curve, strict=True)
        ]

    def text(self) -> str:
        parts = []
        for number, layer in enumerate(self.curves, 1):
            times, last = layer.timescales(), layer.steps[-1]
            middle = np.median(layer.survival, axis=0)
            longest = int(np.isinf(times).sum())
            parts.append(
                f"Layer {number}: after {last} steps the median unit has {middle[-1]:.2g} of what it "
                f"held; half of the units fall below 1/e within "
                f"{short(float(np.quantile(times, 0.5, method='lower')))} steps, {longest} of "
                f"{len(times)} not even within {last}."
            )
        return " ".join(parts)

    def draw(self, *others: UnitDecay):
        from .probes.plot_decay import draw_decay_curves

        return draw_decay_curves(self.curves, f"{self.label}: how long the units remember")


@register_analysis(
    "decay",
    "What is left of the memory after n steps",
    "Chien et al. 2021, figure 1, for trained units",
    needs=(FORGET_FACTOR,),
)
def unit_decay(subject: Subject, settings: NoSettings) -> UnitDecay:
    """Multiplies forget factors over the steps of the sample."""
    return UnitDecay(
        subject.label,
        [
            decay_curves(
                call.layer,
                call.x,
                None,
                call.state,
                call.dt,
                call.lengths,
                f"{call.layer.cell.name}, layer {number}",
            )
            for number, call in enumerate(subject.calls, 1)
        ],
    )
