"""Performance as units are silenced, five at a time (Chien et al. 2021, section 5.3 and figure 5).

The paper ablates 100 of 128 units; the same share is used here. Units are silenced in several random orders
(mean and deviation are shown), and in one order that starts with the units that should matter most. For a
power-law model on the copy task, these are the later-reset units (see reference_times.py), starting with those
that wait longest; for any other model, the units with the longest timescales.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.checks import check_least
from ..common.rng import permutation
from ..config import setting
from .findings.base import Finding, Row, register_analysis
from .needs import AGE, COPY
from .probes.ablation import ablated
from .probes.groups import pick_layer
from .probes.performance import LABELS, performance
from .probes.subject import Subject
from .probes.timescale import measured
from .probes.waiting import waiting_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (3.6, 2.6)

SHARE = 100 / 128
POINTS = 20  # evaluations per order


@dataclass(frozen=True)
class UnitAblationSettings:
    """settings of the unit ablation"""

    at_a_time: int = setting(5, "units silenced per step; more if that would take over 20 steps")
    orders: int = setting(3, "random orders to average over")
    ablate_layer: int = setting(0, "the layer to take units from; 0: the last one")


@dataclass(frozen=True)
class UnitAblation(Finding):
    """silenced [N]: unit counts. random [orders,N], first [N]: `metric` (first: None without a chosen
    order)."""

    label: str
    layer: int
    units: int
    metric: str
    silenced: np.ndarray
    random: np.ndarray
    first_name: str | None
    first: np.ndarray | None

    def table(self) -> list[Row]:
        rows = [
            {"silenced": int(n), "order": f"random {i + 1}", "metric": self.metric, "value": value}
            for i, curve in enumerate(self.random)
            for n, value in zip(self.silenced, curve, strict=True)
        ]
        if self.first is not None:
            rows += [
                {
                    "silenced": int(n),
                    "order": self.first_name,
                    "metric": self.metric,
                    "value": value,
                }
                for n, value in zip(self.silenced, self.first, strict=True)
            ]
        return rows

    def text(self) -> str:
        name, mean = LABELS[self.metric], self.random.mean(axis=0)
        middle = len(self.silenced) // 2
        parts = [
            f"With all {self.units} units of layer {self.layer} the {name} is {mean[0]:.4g}; with "
            f"{self.silenced[middle]} silenced at random it is {mean[middle]:.4g}, with "
            f"{self.silenced[-1]} {mean[-1]:.4g} (mean of {len(self.random)} orders)."
        ]
        if self.first is not None:
            parts.append(
                f"Silencing {self.first_name} gives {self.first[middle]:.4g} and "
                f"{self.first[-1]:.4g}."
            )
        return " ".join(parts)

    def draw(self, *others: UnitAblation):
        return draw_unit_ablation([self, *others])


@register_analysis(
    "unit-ablation",
    "What happens as units are silenced",
    "Chien et al. 2021, section 5.3 and figure 5",
    settings=UnitAblationSettings,
    several=True,
)
def unit_ablation(subject: Subject, settings: UnitAblationSettings) -> UnitAblation:
    """Evaluates `rows` sequences of the split for each set of silenced units."""
    check_least(settings, 1, "at_a_time", "orders")
    picked = pick_layer("ablate_layer", settings.ablate_layer, len(subject.layers))
    layer = len(subject.layers) - 1 if picked is None else picked
    width = subject.layers[layer].hidden_size
    most = max(1, round(SHARE * width))
    step = max(settings.at_a_time, -(-most // POINTS))
    silenced = np.arange(0, most + 1, step)
    metric, whole = performance(subject)

    def curve(order: np.ndarray) -> list[float]:
        values = [whole]
        for count in silenced[1:]:
            with ablated(subject.model, layer, order[:count]):
                values.append(performance(subject)[1])
        return values

    orders = [permutation(width, subject.seed, "unit-ablation", i) for i in range(settings.orders)]
    name, first = _important(subject, layer)
    return UnitAblation(
        subject.label,
        layer + 1,
        width,
        metric,
        silenced,
        np.array([curve(order) for order in orders]),
        name,
        None if first is None else np.array(curve(first)),
    )


def _important(subject: Subject, layer: int) -> tuple[str | None, np.ndarray | None]:
    """Returns an order of the units that starts with those that should matter most, and its name."""
    if (
        AGE.lacks(subject) is None
        and COPY.lacks(subject) is None
        and layer + 1 == len(subject.layers)
    ):
        _, ages, signal, _ = waiting_units(subject)
        waits = ages[np.arange(len(ages)), signal - 1].mean(axis=0)
        return "later-reset units first", np.argsort(-waits, kind="stable")
    if subject.cell.elementwise:
        order = np.argsort(-measured(subject)[layer], kind="stable")
        return "longest timescales first", order
    return None, None


def draw_unit_ablation(found: Sequence[UnitAblation]) -> Figure:
    """Each model has a colour. Solid lines: random orders (band: deviation). Dashed lines: the chosen order."""
    made, (axis,) = style.figure(1, PANEL, right=2.1 if len(found) == 1 else 3.3)
    for color, one in zip(style.cycle_kinds(), found, strict=False):
        name = f"{one.label}, " if len(found) > 1 else ""
        mean, deviation = one.random.mean(axis=0), one.random.std(axis=0)
        axis.plot(
            one.silenced, mean, "o-", color=color, markersize=3, linewidth=1.5,
            label=f"{name}at random ({len(one.random)} orders)",
        )  # fmt: skip
        axis.fill_between(
            one.silenced, mean - deviation, mean + deviation, color=color, alpha=0.18, linewidth=0
        )
        if one.first is not None:
            axis.plot(
                one.silenced, one.first, "s", linestyle=style.DASHES[1], linewidth=1.5, markersize=3,
                color=style.KINDS[1] if len(found) == 1 else color, label=f"{name}{one.first_name}",
            )  # fmt: skip
    if found[0].metric == "perplexity":
        style.log_values(axis)
    axis.set_xlabel(f"silenced units of {found[0].units}, layer {found[0].layer}", fontsize=9)
    axis.set_ylabel(LABELS[found[0].metric], fontsize=9)
    style.legend_right(axis)
    name = f"{found[0].label}: " if len(found) == 1 else ""
    style.title(made, f"{name}what happens as units are silenced")
    return made
