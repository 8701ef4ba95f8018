"""Timescales over a training run, checkpoint by checkpoint (Ohno et al. 2022, figure 5).

They are computed from the biases alone if these determine the forget gate, otherwise (power law) from the gates
on a fixed sample of data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common import style
from ..common.numbers import short
from ..train.checkpoint import model_of, read_checkpoint
from .findings.base import DoesNotApply, Finding, NoSettings, Row, register_analysis
from .needs import FORGET_FACTOR, RUN
from .probes.decay import forget_factors
from .probes.layer_calls import layer_calls
from .probes.subject import Subject
from .probes.timescale import bias_timescales, gate_timescales, unit_of_biases, unit_of_time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (2.6, 2.3)

_NUMBERED = re.compile(r"checkpoint(\d+)\.pt")


def checkpoints_of(folder: Path) -> list[Path]:
    """checkpoint1.pt, checkpoint2.pt, ... as tsm-train writes them, sorted by number."""
    found = [
        (int(match[1]), path)
        for path in folder.iterdir()
        if (match := _NUMBERED.fullmatch(path.name))
    ]
    return [path for _, path in sorted(found)]


@dataclass(frozen=True)
class TimescalesOverTraining(Finding):
    """updates [N]: the update of each checkpoint. timescales: one array [N,H] per layer, in `unit`. source:
    biases or gates."""

    label: str
    source: str
    updates: list[int]
    timescales: list[np.ndarray]
    unit: str

    def table(self) -> list[Row]:
        return [
            {
                "updates": update,
                "layer": number,
                "source": self.source,
                "mean": finite.mean() if len(finite) else None,
                "deviation": finite.std() if len(finite) else None,
                "median": np.median(values[at]),
                "longest": values[at].max(),
            }
            for number, values in enumerate(self.timescales, 1)
            for at, update in enumerate(self.updates)
            for finite in [values[at][np.isfinite(values[at])]]
        ]

    def text(self) -> str:
        parts = []
        for number, values in enumerate(self.timescales, 1):
            first, last = np.median(values[0]), np.median(values[-1])
            if np.isclose(values[0], values[-1], rtol=1e-5).all():
                parts.append(f"Layer {number}: no timescale changes.")
                continue
            parts.append(
                f"Layer {number}: the median goes from {short(first)} to {short(last)} {self.unit}, the "
                f"longest from {short(values[0].max())} to {short(values[-1].max())}."
            )
        span = f"{self.updates[0]:,} to {self.updates[-1]:,}"
        return (
            f"{len(self.updates)} checkpoints, updates {span}; timescales from the {self.source}. "
            + " ".join(parts)
        )

    def draw(self, *others: TimescalesOverTraining):
        return draw_timescales_over_training([self, *others])


def _update(checkpoint: dict[str, Any], path: Path) -> int:
    update = checkpoint["train_state"].get("update")
    if not isinstance(update, int):
        raise ValueError(f"{path} does not say after how many updates it was written")
    return update


@register_analysis(
    "timescales-over-training",
    "Timescales as they grow during training",
    "Ohno et al. 2022, figure 5",
    needs=(FORGET_FACTOR, RUN),
    several=True,
)
def timescales_over_training(subject: Subject, settings: NoSettings) -> TimescalesOverTraining:
    """Analyses every checkpoint of the run. All must belong to the same model."""
    source = "gates" if bias_timescales(subject.layers[0]) is None else "biases"
    unit = (unit_of_time if source == "gates" else unit_of_biases)(subject)
    shapes = {name: value.shape for name, value in subject.model.state_dict().items()}
    updates, found = [], []
    for path in subject.run:
        checkpoint = read_checkpoint(path)
        model = model_of(checkpoint, path).to(subject.device).eval()
        if {name: value.shape for name, value in model.state_dict().items()} != shapes:
            raise DoesNotApply(
                f"timescales-over-training does not apply to {subject.kind} because {path} holds another model"
            )
        updates.append(_update(checkpoint, path))
        if source == "biases":
            found.append([bias_timescales(layer) for layer in model.layers])
            continue
        s = subject.sample
        found.append(
            [
                gate_timescales(forget_factors(c.layer, c.x, c.state, c.dt), subject.valid)
                * unit.step
                for c in layer_calls(model, s.x, s.lengths, None, s.dt)
            ]
        )
    order = np.argsort(updates, kind="stable")
    layers = [
        np.array([found[i][layer] for i in order], dtype=np.float64)
        for layer in range(len(subject.layers))
    ]
    in_order = [updates[i] for i in order]
    return TimescalesOverTraining(subject.label, source, in_order, layers, unit.name)


def draw_timescales_over_training(found: Sequence[TimescalesOverTraining]) -> Figure:
    """Draws one panel per layer and, if there are several models, one colour per model."""
    layers = max(len(one.timescales) for one in found)
    made, axes = style.figure(layers, PANEL, right=1.5, top=0.6)
    for color, dash, one in zip(style.cycle_kinds(), style.cycle_dashes(), found, strict=False):
        for axis, values in zip(axes, one.timescales, strict=False):
            shown = np.where(np.isfinite(values), values, np.nan)
            low, middle, high = np.nanquantile(shown, [0.25, 0.5, 0.75], axis=1)
            name = one.label if len(found) > 1 else "median unit"
            axis.plot(one.updates, middle, color=color, linestyle=dash, linewidth=1.8, label=name)
            axis.fill_between(
                one.updates, low, high, color=color, alpha=0.18, linewidth=0, label="middle half"
            )
            longest = np.nanmax(shown, axis=1)
            axis.plot(one.updates, longest, ".", color=color, markersize=4, label="longest finite")
    for number, axis in enumerate(axes, 1):
        style.log_values(axis)
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("updates", fontsize=9)
        style.few_ticks(axis)
    axes[0].set_ylabel(f"timescale from the {found[0].source}, {found[0].unit}", fontsize=9)
    style.legend_right(axes[-1])
    name = f"{found[0].label}: " if len(found) == 1 else ""
    style.title(made, f"{name}timescales in training")
    return made
