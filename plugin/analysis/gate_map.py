"""The forget gates over a sentence. Units are sorted by their mean gate value and averaged in groups of ten.

Mahto et al. 2021, figure 5. The sentence is `--sentence`, or the first row of the split. For a power-law unit
the forget factor is shown, which falls at a reset and rises with the unit's age.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..common import style
from ..common.checks import check_least
from ..common.numbers import short
from ..config import setting
from ..tasks.text import TextTask
from .findings.base import DoesNotApply, Finding, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.decay import forget_factors
from .probes.groups import fitting_size, runs
from .probes.layer_calls import layer_calls
from .probes.subject import Subject
from .probes.timescale import assigned_timescales

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 2.7
WIDTH_OF_STEP, WIDEST, NARROWEST = 0.115, 4.6, 2.0
LONGEST_WORD = 12

LEAST_GROUPS = 12


@dataclass(frozen=True)
class GateMapSettings:
    """settings of the map"""

    sentence: str = setting(
        "", "text to show, for models of text (default: the start of the split)"
    )
    map_steps: int = setting(40, "steps of the split to show")
    map_group: int = setting(10, "units averaged per line; fewer in small layers")


@dataclass(frozen=True)
class LayerMap:
    """gates [G,T]: group means, the most forgetful group first. assigned [G]: mean assigned timescales."""

    group: int
    gates: np.ndarray
    assigned: np.ndarray | None


@dataclass(frozen=True)
class GateMap(Finding):
    """symbols: the input of each of the T steps, as text. reads: what a symbol is, such as a word."""

    label: str
    reads: str
    symbols: list[str]
    layers: list[LayerMap]

    def table(self) -> list[Row]:
        return [
            {
                "layer": number,
                "group": group,
                "units": layer.group,
                "step": t + 1,
                "symbol": symbol,
                "forget_gate": layer.gates[group, t],
                "assigned_timescale": None if layer.assigned is None else layer.assigned[group],
            }
            for number, layer in enumerate(self.layers, 1)
            for group in range(len(layer.gates))
            for t, symbol in enumerate(self.symbols)
        ]

    def text(self) -> str:
        parts = []
        for number, layer in enumerate(self.layers, 1):
            means = layer.gates.mean(axis=1)
            step = int(layer.gates.mean(axis=0).argmin())
            parts.append(
                f"Layer {number}: group means from {means[0]:.2f} to {means[-1]:.2f}; "
                f"{(means > 0.9).mean():.0%} of the groups keep more than 0.9 per step. Most is "
                f"forgotten at step {step + 1} ({self.symbols[step]!r}), where the mean gate is "
                f"{short(float(layer.gates[:, step].mean()))}."
            )
        return " ".join(parts)

    def draw(self, *others: GateMap):
        return draw_gate_map(self)


@register_analysis(
    "gate-map",
    "Forget gates over a sentence",
    "Mahto et al. 2021, figure 5",
    needs=(FORGET_FACTOR,),
    settings=GateMapSettings,
)
def gate_map(subject: Subject, settings: GateMapSettings) -> GateMap:
    """Computes the map of every layer."""
    check_least(settings, 1, "map_steps", "map_group")
    x, dt, reads, symbols = _input(subject, settings)
    maps = []
    for call in layer_calls(subject.model, x, None, None, dt):
        gates = forget_factors(call.layer, call.x, call.state, call.dt)[0]  # [T,H]
        order = np.argsort(gates.mean(axis=0), kind="stable")
        size = fitting_size(settings.map_group, len(order), LEAST_GROUPS)
        groups = runs(order, size)
        given = assigned_timescales(call.layer)
        maps.append(
            LayerMap(
                size,
                np.array([gates[:, units].mean(axis=1) for units in groups]),
                None if given is None else np.array([given[units].mean() for units in groups]),
            )
        )
    return GateMap(subject.label, reads, symbols, maps)


def _input(
    subject: Subject, settings: GateMapSettings
) -> tuple[torch.Tensor, torch.Tensor | None, str, list[str]]:
    """Returns x [1,T] or [1,T,I], dt, what a step reads (such as a word), and a name for each step."""
    text = isinstance(subject.task, TextTask)
    if settings.sentence:
        if not text:
            raise DoesNotApply(
                f"gate-map with --sentence does not apply to {subject.kind} because its task, "
                f"{subject.task_name}, has no text"
            )
        ids = subject.tokenizer.encode_line(settings.sentence, subject.vocab)
        x = torch.tensor([ids], device=subject.device)
        return x, None, "tokens read", [subject.vocab[i] for i in ids]
    sample = subject.sample
    steps = min(settings.map_steps, int(subject.valid[0].sum()))
    x = sample.x[:1, :steps]
    dt = None if sample.dt is None else sample.dt[:1, :steps]
    if text:
        return x, dt, "tokens read", [subject.vocab[i] for i in x[0].tolist()]
    if x.dim() == 2:
        return x, dt, "symbols read", [str(i) for i in x[0].tolist()]
    return x, dt, "steps", [str(t + 1) for t in range(steps)]


def draw_gate_map(found: GateMap) -> Figure:
    """Draws one panel per layer, with the most forgetful units on top. Dark means forgotten, light kept."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    steps = len(found.symbols)
    width = min(WIDEST, max(NARROWEST, WIDTH_OF_STEP * steps))
    names = [_name(s) for s in found.symbols]
    room = 0.056 * max(len(n) for n in names) + 0.1
    made, axes = style.figure(
        len(found.layers), (width, HEIGHT), right=0.95, top=0.6, share=False, bottom=0.3 + room
    )
    scale = ScalarMappable(Normalize(0, 1), "viridis")
    for number, (axis, layer) in enumerate(zip(axes, found.layers, strict=True), 1):
        axis.imshow(
            layer.gates, aspect="auto", interpolation="nearest", cmap="viridis", vmin=0, vmax=1
        )
        axis.grid(False)
        axis.set_title(f"layer {number}", fontsize=8.5, color=style.INK)
        axis.set_xticks(*_ticks(names, width), rotation=90, fontsize=6.5)
        axis.set_xlabel(found.reads, fontsize=9)
        _name_groups(axis, layer.assigned, layer.group, len(layer.gates))
    axes[0].set_ylabel(_axis_label(found), fontsize=8.5)
    style.color_bar(made, axes[-1], scale, "forget gate (0 forgets, 1 keeps)")
    style.title(made, f"{found.label}: forget gates over {steps} steps")
    return made


def _axis_label(found: GateMap) -> str:
    sizes = sorted({layer.group for layer in found.layers})
    units = "single units" if sizes == [1] else f"groups of {' or '.join(map(str, sizes))} units"
    assigned = any(layer.assigned is not None for layer in found.layers)
    return f"{units}{', assigned steps' if assigned else ''}"


def _ticks(names: list[str], width: float) -> tuple[list[int], list[str]]:
    """The positions and labels of as many ticks as fit."""
    every = max(1, int(np.ceil(len(names) * 0.1 / width)))
    at = list(range(0, len(names), every))
    return at, [names[i] for i in at]


def _name_groups(axis, assigned: np.ndarray | None, group: int, count: int) -> None:
    """Labels the groups with their assigned timescales if there are any, else with the indices of the units."""
    at = np.unique(np.linspace(0, count - 1, min(count, 8)).round().astype(int))
    if assigned is None:
        axis.set_yticks(at, [str(int(i) * group + 1) for i in at])
        return
    axis.set_yticks(at, [short(float(assigned[i])) for i in at])


def _name(symbol: str) -> str:
    """A symbol as an axis label: white space is made visible and long words are truncated."""
    shown = {" ": "_", "\n": "\\n", "\t": "\\t"}.get(symbol, symbol).replace("$", r"\$")
    return shown if len(shown) <= LONGEST_WORD else shown[: LONGEST_WORD - 2] + ".."
