"""How long a word stays in memory: replace one word and measure how the difference decays.

    D_n = |c_{t+n} - c~_{t+n}| / |c_t - c~_t|,    c~ after the word at t was replaced by <unk>

averaged over positions t, for every layer and for groups of units sorted by timescale (Mahto et al. 2021,
figures 6 to 8). If the dictionary has no <unk>, its most frequent symbol is used. For cells other than LSTMs, c
is the state that holds the memory (retention.memory_of).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..common import style
from ..common.checks import check_least
from ..common.numbers import short
from ..common.rng import uniforms
from ..config import setting
from .findings.base import Finding, Row, register_analysis
from .needs import LANGUAGE_MODEL
from .probes.groups import fitting_size, runs
from .probes.layer_calls import layer_calls
from .probes.retention import memory_of
from .probes.subject import Subject
from .probes.timescale import assigned_timescales, measured, widest
from .probes.trace import trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (2.9, 2.6)
FLOOR = 1e-4

LEAST_GROUPS = 4
BLOCK = 16  # places processed at once


@dataclass(frozen=True)
class WordAblationSettings:
    """settings of the word ablation"""

    places: int = setting(32, "number of words to replace, one at a time")
    before: int = setting(20, "tokens read before the word")
    after: int = setting(60, "tokens read after it")
    word_group: int = setting(100, "units per group; fewer in small layers")


@dataclass(frozen=True)
class Group:
    """Units of one layer with their mean timescale. decay [N]: D_0 = 1, D_1, ..."""

    units: int
    timescale: float
    decay: np.ndarray


@dataclass(frozen=True)
class WordAblation(Finding):
    """layers [L,N]: D_0 = 1 .. D_{N-1} of all units. groups: in `group_layer`, longest timescale first."""

    label: str
    memory: str
    replacement: str
    places: int
    layers: np.ndarray
    group_layer: int | None
    groups: list[Group]

    def table(self) -> list[Row]:
        rows = [
            {"layer": number, "units": "all", "timescale": None, "steps": n, "difference": value}
            for number, curve in enumerate(self.layers, 1)
            for n, value in enumerate(curve)
        ]
        rows += [
            {
                "layer": self.group_layer,
                "units": f"group {i}",
                "timescale": group.timescale,
                "steps": n,
                "difference": value,
            }
            for i, group in enumerate(self.groups, 1)
            for n, value in enumerate(group.decay)
        ]
        return rows

    def text(self) -> str:
        last = self.layers.shape[1] - 1
        parts = [
            f"After a word is replaced by {self.replacement!r} ({self.places} places), the difference "
            f"in the state {self.memory} falls below 1/10 after "
            + ", ".join(
                f"{_below(curve, 0.1, last)} steps in layer {number}"
                for number, curve in enumerate(self.layers, 1)
            )
            + "."
        ]
        if len(self.groups) > 1:
            slow, fast = self.groups[0], self.groups[-1]
            parts.append(
                f"In layer {self.group_layer} the slowest group (mean timescale "
                f"{short(slow.timescale)} steps) has {slow.decay[min(10, last)]:.3f} of it left after "
                f"{min(10, last)} steps, the fastest (mean {short(fast.timescale)}) "
                f"{fast.decay[min(10, last)]:.3f}."
            )
        return " ".join(parts)

    def draw(self, *others: WordAblation):
        return draw_word_ablation(self)


def _below(curve: np.ndarray, level: float, last: int) -> str:
    under = np.flatnonzero(curve < level)
    return str(int(under[0])) if len(under) else f"more than {last}"


@register_analysis(
    "word-ablation",
    "How long a word stays in the memory",
    "Mahto et al. 2021, A.4 and figures 6 to 8",
    needs=(LANGUAGE_MODEL,),
    settings=WordAblationSettings,
)
def word_ablation(subject: Subject, settings: WordAblationSettings) -> WordAblation:
    """Measures each layer, and groups of units in the layer with the widest spread of timescales."""
    other = replacement(subject)
    texts, at = _texts(subject, settings, other)
    memory = memory_of(subject.cell)
    gaps: list[list[np.ndarray]] = [[] for _ in subject.layers]
    for start in range(0, len(texts), BLOCK):
        part = texts[start : start + BLOCK]
        changed = part.clone()
        changed[:, at] = other
        calls = layer_calls(subject.model, torch.cat([part, changed]).to(subject.device))
        for found, call in zip(gaps, calls, strict=True):
            states = trace(call, [memory])[memory]
            found.append((states[: len(part)] - states[len(part) :])[:, at:])
    differences = [np.concatenate(found) for found in gaps]  # [places, N, width] per layer
    layers = np.array([decay(gap) for gap in differences])
    group_layer, groups = None, []
    if subject.cell.elementwise:
        group_layer = widest(subject) + 1
        groups = _groups(subject, settings, group_layer - 1, differences[group_layer - 1])
    return WordAblation(
        subject.label,
        memory,
        subject.vocab[other],
        len(texts),
        layers,
        group_layer,
        groups,
    )


def replacement(subject: Subject) -> int:
    """<unk>, or the most frequent symbol if the dictionary has none."""
    unk = subject.vocab.unk
    return int(subject.vocab.counts.argmax()) if unk is None else unk


def decay(gap: np.ndarray) -> np.ndarray:
    """D_n [N] from differences [places, N, width]. Places where D_0 would be 0 / 0 are ignored."""
    size = np.linalg.norm(gap, axis=-1)
    told = size[:, 0] > 0
    if not told.any():
        return np.full(size.shape[1], np.nan)
    return (size[told] / size[told, :1]).mean(axis=0)


def _groups(
    subject: Subject, settings: WordAblationSettings, layer: int, gap: np.ndarray
) -> list[Group]:
    given = assigned_timescales(subject.layers[layer])
    times = measured(subject)[layer] if given is None else given
    size = fitting_size(settings.word_group, len(times), LEAST_GROUPS)
    return [
        Group(len(units), float(times[units].mean()), decay(gap[..., units]))
        for units in runs(np.argsort(-times, kind="stable"), size)
    ]


def _texts(
    subject: Subject, settings: WordAblationSettings, other: int
) -> tuple[torch.Tensor, int]:
    """Pieces of the split [places, before + 1 + after] whose word at `before` is not the replacement."""
    check_least(settings, 0, "before")
    check_least(settings, 1, "places", "after", "word_group")
    tokens = subject.tokens(subject.split)
    width = min(settings.before + 1 + settings.after, len(tokens))
    at = min(settings.before, width - 1)
    starts = uniforms(4 * settings.places, subject.seed, "word-ablation")
    pieces: list[np.ndarray] = []
    for start in (starts * (len(tokens) - width + 1)).astype(np.int64).tolist():
        piece = tokens.read(start, start + width)
        if piece[at] != other and len(pieces) < settings.places:
            pieces.append(np.asarray(piece, dtype=np.int64))
    if not pieces:
        raise ValueError(
            f"the {subject.split} split has no word other than {subject.vocab[other]!r}"
        )
    return torch.from_numpy(np.stack(pieces)), at


def draw_word_ablation(found: WordAblation) -> Figure:
    """Plots D_n against n + 1 on log-log axes, so that D_0 = 1 is also shown."""
    panels = 1 + bool(found.groups)
    made, axes = style.figure(panels, PANEL, right=1.6, top=0.6)
    for number, (curve, color, dash) in enumerate(
        zip(found.layers, style.cycle_kinds(), style.cycle_dashes(), strict=False), 1
    ):
        _line(axes[0], curve, color, dash, f"layer {number}")
    axes[0].set_title("by layer", fontsize=8.5, color=style.INK)
    axes[0].legend(frameon=False, fontsize=7.5, loc="lower left")
    if found.groups:
        colors = style.ordered(len(found.groups))
        for group, color in zip(found.groups, colors, strict=True):
            _line(
                axes[1], group.decay, color, "-", f"{short(group.timescale)} ({group.units} units)"
            )
        whole = found.layers[(found.group_layer or 1) - 1]
        _line(axes[1], whole, style.KINDS[1], style.DASHES[1], "all units")
        axes[1].set_title(f"layer {found.group_layer}, by timescale", fontsize=8.5, color=style.INK)
        style.legend_right(axes[1], title="mean timescale, steps")
    curves = np.concatenate([found.layers.ravel(), *(g.decay for g in found.groups)])
    there = curves[np.isfinite(curves) & (curves > 0)]
    least, most = (there.min(), there.max()) if len(there) else (FLOOR, 1.0)
    for axis in axes:
        axis.set(xscale="log", yscale="log")
        axis.set_xlabel("steps since the replaced word, n + 1", fontsize=9)
        axis.set_ylim(max(FLOOR, 0.5 * least), 1.5 * most)
    axes[0].set_ylabel(f"difference in {found.memory}, $D_n$", fontsize=9)
    style.title(made, f"{found.label}: what is left of one replaced word")
    return made


def _line(axis: Axes, curve: np.ndarray, color: str, dash, label: str) -> None:
    shown = np.where(curve > FLOOR / 10, curve, np.nan)
    axis.plot(
        np.arange(1, len(curve) + 1), shown, color=color, linestyle=dash, linewidth=1.4, label=label
    )
