"""The exponents p of power-law units: how slowly each forgets (Chien et al. 2021, section 5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from .findings.base import Finding, NoSettings, Row, register_analysis
from .needs import AGE, COPY, EXPONENT
from .probes.numpy_layer import array
from .probes.subject import Subject
from .probes.waiting import waiting_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (2.7, 2.2)
BINS = 20
HATCHES = ("////", "")  # so that the two kinds of unit can be told apart without colour


@dataclass(frozen=True)
class LearnedP(Finding):
    """p: [H] per layer. later [H]: the later-reset units of `later_layer` (None except on the copy task)."""

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
        return draw_learned_p(self)


@register_analysis(
    "learned-p",
    "Exponents of the units",
    "Chien et al. 2021, section 5.2 and figure A.4",
    needs=(EXPONENT,),
)
def learned_p(subject: Subject, settings: NoSettings) -> LearnedP:
    """Collects p of every layer. On the copy task, later-reset units are shown separately."""
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


def draw_learned_p(found: LearnedP) -> Figure:
    """The bars are stacked, so their total height counts all units."""
    made, axes = style.figure(len(found.p), PANEL, right=1.5, top=0.6)
    edges = np.linspace(0, max(1.0, *(float(p.max()) for p in found.p)), BINS + 1)
    for number, (axis, p) in enumerate(zip(axes, found.p, strict=True), 1):
        if found.later is not None and number == found.later_layer:
            parts = [p[found.later], p[~found.later]]
            names = [f"later-reset ({len(parts[0])})", f"other units ({len(parts[1])})"]
            colors = [style.KINDS[1], style.KINDS[0]]
        else:
            parts, names, colors = [p], [f"all units ({len(p)})"], [style.KINDS[0]]
        below = np.zeros(BINS)
        for part, name, color, hatch in zip(parts, names, colors, HATCHES, strict=False):
            height, _ = np.histogram(part, edges)
            axis.bar(
                edges[:-1], height, np.diff(edges), below, align="edge", color=color, label=name,
                edgecolor="white", linewidth=0.5, hatch=hatch if len(parts) > 1 else "",
            )  # fmt: skip
            below += height
        axis.axvline(p.mean(), color=style.INK, linewidth=1, linestyle=style.DASHES[1])
        axis.annotate(
            f"mean {p.mean():.2f}", (p.mean(), 1), (3, -2), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", fontsize=7.5, va="top", color=style.INK,
        )  # fmt: skip
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("exponent p", fontsize=9)
    axes[0].set_ylabel("units", fontsize=9)
    style.legend_right(axes[-1], *axes)
    style.title(made, f"{found.label}: {'learned' if found.learned else 'fixed'} exponents")
    return made
