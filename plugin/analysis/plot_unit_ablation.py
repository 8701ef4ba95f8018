"""The picture of silenced units: accuracy (or perplexity) against how many are silent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..common import style
from .probes.performance import LABELS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .unit_ablation import UnitAblation

PANEL = (3.6, 2.6)


def draw_unit_ablation(found: Sequence[UnitAblation]) -> Figure:
    """Colours are models; full lines are random orders (band: deviation), dashed ones the chosen order."""
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
