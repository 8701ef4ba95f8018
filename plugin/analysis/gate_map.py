"""The forget gates over a sentence: units sorted by their mean gate and averaged in tens.

Mahto et al. 2021, figure 5. The sentence is `--sentence`, or the first row of the split. A power-law unit is
shown by its forget factor, which falls at a reset and rises with its age.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..config import setting
from ..tasks.rows import at_least
from ..tasks.text import TextTask
from .findings.base import DoesNotApply, Finding, Row, register_analysis
from .needs import FORGET_FACTOR
from .probes.decay import forget_factors
from .probes.groups import fitting_size, runs
from .probes.layer_calls import layer_calls
from .probes.subject import Subject
from .timescales import assigned_timescales, short

LEAST_GROUPS = 12


@dataclass(frozen=True)
class GateMapSettings:
    """settings of the map"""

    sentence: str = setting(
        "", "text to show, for models of text (default: the start of the split)"
    )
    map_steps: int = setting(40, "steps of the split to show")
    map_group: int = setting(10, "units averaged in a line; fewer in small layers")


@dataclass(frozen=True)
class LayerMap:
    """gates [G,T]: group means, most forgetful first; assigned [G]: mean assigned timescale."""

    group: int
    gates: np.ndarray
    assigned: np.ndarray | None


@dataclass(frozen=True)
class GateMap(Finding):
    """symbols: what is read at each of the T steps; reads: what a symbol is."""

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
                f"{(means > 0.9).mean():.0%} of the groups keep more than 0.9 a step. Most is "
                f"forgotten at step {step + 1} ({self.symbols[step]!r}), where the mean gate is "
                f"{short(float(layer.gates[:, step].mean()))}."
            )
        return " ".join(parts)

    def draw(self, *others: GateMap):
        from .plot_gate_map import draw_gate_map

        return draw_gate_map(self)


@register_analysis(
    "gate-map",
    "Forget gates over a sentence",
    "Mahto et al. 2021, figure 5",
    needs=(FORGET_FACTOR,),
    settings=GateMapSettings,
)
def gate_map(subject: Subject, settings: GateMapSettings) -> GateMap:
    """Of every layer."""
    at_least(settings, 1, "map_steps", "map_group")
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
    """x [1,T] or [1,T,I], dt, what is read at a step, and the steps by name."""
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
    steps = min(settings.map_steps, int(subject.there[0].sum()))
    x = sample.x[:1, :steps]
    dt = None if sample.dt is None else sample.dt[:1, :steps]
    if text:
        return x, dt, "tokens read", [subject.vocab[i] for i in x[0].tolist()]
    if x.dim() == 2:
        return x, dt, "symbols read", [str(i) for i in x[0].tolist()]
    return x, dt, "steps", [str(t + 1) for t in range(steps)]
