"""The exponents p of power-law units: how slowly each forgets (Chien et al. 2021, section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import AGE, COPY, EXPONENT
from .probes.numpy_layer import array
from .probes.subject import Subject
from .reference_times import waiting_units


@dataclass(frozen=True)
class LearnedP(Finding):
    """p [H] a layer; later [H]: later-reset units of `later_layer`, on the copy task (else None)."""

    label: str
    learned: bool
    p: list[np.ndarray]
    later_layer: int | None
    later: np.ndarray | None

    def table(self) -> list[Row]:
        return [
            {
                "layer": number,
                "unit": unit,
                "p": value,
                "later_reset": bool(self.later[unit])
                if self.later is not None and number == self.later_layer
                else None,
            }
            for number, values in enumerate(self.p, 1)
            for unit, value in enumerate(values)
        ]

    def text(self) -> str:
        parts = ["p is learned." if self.learned else "p is fixed, not learned."]
        for number, values in enumerate(self.p, 1):
            parts.append(
                f"Layer {number}: mean {values.mean():.3f}, deviation {values.std():.3f}, "
                f"{(values < 0.5).mean():.0%} of {len(values)} units below 0.5."
            )
        if self.later is not None and self.later_layer is not None and self.later.any():
            values = self.p[self.later_layer - 1]
            parts.append(
                f"The {int(self.later.sum())} later-reset units of layer {self.later_layer} have a "
                f"mean of {values[self.later].mean():.3f}"
                + (
                    f", the others of {values[~self.later].mean():.3f}."
                    if not self.later.all()
                    else "."
                )
            )
        return " ".join(parts)

    def draw(self, *others: LearnedP):
        from .plot_learned_p import draw_learned_p

        return draw_learned_p(self)


@register_analysis(
    "learned-p",
    "Exponents of the units",
    "Chien et al. 2021, section 5.2 and figure A.4",
    needs=(EXPONENT,),
)
def learned_p(subject: Subject, settings: NoSettings) -> LearnedP:
    """Of every layer; on the copy task with the later-reset units told apart."""
    later_layer, later = None, None
    if AGE.lacks(subject) is None and COPY.lacks(subject) is None:
        layer, _, _, later = waiting_units(subject)
        later_layer = layer + 1
    return LearnedP(
        subject.label,
        subject.layers[0].options["p"] is None,
        [array(layer.vectors()["p"]) for layer in subject.layers],
        later_layer,
        later,
    )
