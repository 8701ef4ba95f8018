"""How a model gets worse as units are silenced, five at a time (Chien et al. 2021, section 5.3 and figure 5).

The paper takes out 100 of 128 units: here the same share. Orders: at random (several, their mean and
deviation), and the units first that should matter most: later-reset ones where the model has them (power law
on copy, longest wait first), else those with the longest timescales.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..common.rng import permutation
from ..config import setting
from ..tasks.rows import at_least
from .findings.base import Finding, Row, register_analysis
from .needs import AGE, COPY
from .probes.ablation import ablated
from .probes.groups import pick_layer
from .probes.performance import LABELS, performance
from .probes.subject import Subject
from .reference_times import waiting_units
from .timescales import measured

SHARE = 100 / 128
POINTS = 20  # at which a model is evaluated, for every order


@dataclass(frozen=True)
class UnitAblationSettings:
    """settings of the unit ablation"""

    at_a_time: int = setting(5, "units silenced in a step; more where that takes over 20 steps")
    orders: int = setting(3, "random orders to average over")
    ablate_layer: int = setting(0, "the layer to take units from; 0: the last one")


@dataclass(frozen=True)
class UnitAblation(Finding):
    """silenced [N]: how many; random [orders,N] and first [N] (None: no order to try) by `metric`."""

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
        from .plot_unit_ablation import draw_unit_ablation

        return draw_unit_ablation([self, *others])


@register_analysis(
    "unit-ablation",
    "What happens as units are silenced",
    "Chien et al. 2021, section 5.3 and figure 5",
    settings=UnitAblationSettings,
    several=True,
)
def unit_ablation(subject: Subject, settings: UnitAblationSettings) -> UnitAblation:
    """On `rows` sequences of the split."""
    at_least(settings, 1, "at_a_time", "orders")
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
    """An order of the units in which the ones that should matter come first, and its name."""
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
