"""Which words need which units: the perplexity of frequent and rare words when one group of units at a time is
silenced.

The units of a layer are sorted by timescale and cut into groups of 50. The h of one group is set to 0 for the
layer above, and the perplexity of each frequency bin is divided by that of the whole model (Mahto et al. 2021,
figures 3 and 11). A ratio above 1 means that the words of that bin need the group. The layer's own recurrence
still reads the group, as in the authors' code; `--route-recurrence` also silences it there.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ..common import style
from ..common.checks import check_least
from ..common.numbers import short
from ..config import setting
from ..evaluation.frequency_bins import EDGES, LABELS
from .findings.base import Finding, Row, register_analysis
from .needs import FORGET_FACTOR, LANGUAGE_MODEL
from .probes.ablation import ablated
from .probes.groups import fitting_size, pick_layer, runs
from .probes.subject import Subject
from .probes.timescale import assigned_timescales, measured, widest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (4.6, 2.6)
MARKS = "osD^v"

LEAST_GROUPS = 8


@dataclass(frozen=True)
class RoutingSettings:
    """settings of the routing"""

    route_layer: int = setting(
        0, "the layer to examine; 0: the one with the widest spread of timescales"
    )
    route_group: int = setting(50, "units per group; fewer in small layers")
    route_recurrence: bool = setting(False, "silence a group for its own layer as well")


@dataclass(frozen=True)
class Routing(Finding):
    """ratios [G, bins]: NaN for an empty bin. timescales [G]: one per group, longest first."""

    label: str
    layer: int
    group: int
    timescales: np.ndarray
    bins: list[str]
    words: np.ndarray
    whole: np.ndarray
    ratios: np.ndarray

    def table(self) -> list[Row]:
        return [
            {
                "layer": self.layer,
                "group": g + 1,
                "mean_timescale": self.timescales[g],
                "bin": name,
                "words": int(self.words[b]),
                "perplexity_whole": self.whole[b],
                "ratio": self.ratios[g, b],
            }
            for g in range(len(self.timescales))
            for b, name in enumerate(self.bins)
        ]

    def text(self) -> str:
        parts = []
        for b, name in enumerate(self.bins):
            column = self.ratios[:, b]
            if np.isnan(column).all():
                continue
            g = int(np.nanargmax(column))
            parts.append(
                f"{name} ({int(self.words[b]):,} words): {column[g]:.3f} without the group of mean "
                f"timescale {short(self.timescales[g])}"
            )
        return (
            f"Groups of {self.group} units of layer {self.layer} were silenced one at a time. The "
            f"largest ratio of perplexities in each bin of training counts is {'; '.join(parts)}."
        )

    def draw(self, *others: Routing):
        return draw_routing(self)


@register_analysis(
    "routing",
    "Which words need which timescales",
    "Mahto et al. 2021, figures 3 and 11",
    needs=(FORGET_FACTOR, LANGUAGE_MODEL),
    settings=RoutingSettings,
)
def routing(subject: Subject, settings: RoutingSettings) -> Routing:
    """Evaluates `rows` pieces of the split."""
    check_least(settings, 1, "route_group")
    picked = pick_layer("route_layer", settings.route_layer, len(subject.layers))
    layer = widest(subject) if picked is None else picked
    given = assigned_timescales(subject.layers[layer])
    times = measured(subject)[layer] if given is None else given
    size = fitting_size(settings.route_group, len(times), LEAST_GROUPS)
    groups = runs(np.argsort(-times, kind="stable"), size)
    bits, words = bin_bits(subject)
    ratios = []
    for units in groups:
        without, _ = bin_bits(subject, layer, units, settings.route_recurrence)
        ratios.append(np.exp2(without - bits))
    return Routing(
        subject.label,
        layer + 1,
        size,
        np.array([times[units].mean() for units in groups]),
        [*LABELS, "all"],
        words,
        np.exp2(bits),
        np.array(ratios),
    )


@torch.no_grad()
def bin_bits(
    subject: Subject, layer: int = 0, units: np.ndarray | None = None, recurrence: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """(mean bits, words) of each frequency bin and of all words, with `units` of a layer silenced."""
    bin_of = (subject.vocab.counts[:, None] < np.array(EDGES)).sum(1)
    sums, words = np.zeros(len(LABELS)), np.zeros(len(LABELS))
    state = None
    with nullcontext() if units is None else ablated(subject.model, layer, units, recurrence):
        for batch in subject.batches():
            logits, new = subject.model(batch.x, state=state)
            state = new if subject.task.stateful else None
            nats = nn.functional.cross_entropy(
                logits.float().flatten(0, 1), batch.target.flatten(), reduction="none"
            )
            bins = bin_of[batch.target.flatten().cpu().numpy()]
            sums += np.bincount(bins, nats.double().cpu().numpy(), len(LABELS))
            words += np.bincount(bins, minlength=len(LABELS))
    sums, words = np.append(sums, sums.sum()), np.append(words, words.sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / words / np.log(2), words


def draw_routing(found: Routing) -> Figure:
    """The longest timescale is on the left, as in the paper."""
    made, (axis,) = style.figure(1, PANEL, right=1.5, bottom=0.75)
    at = np.arange(len(found.timescales))
    lines = zip(found.bins, style.cycle_kinds(), style.cycle_dashes(), MARKS, strict=False)
    for b, (name, color, dash, mark) in enumerate(lines):
        if not found.words[b]:
            continue
        thick = 2.0 if name == "all" else 1.3
        axis.plot(
            at, found.ratios[:, b], mark, linestyle=dash, color=style.INK if name == "all" else color,
            markersize=3.5, linewidth=thick, label=name,
        )  # fmt: skip
    axis.axhline(1, color=style.FAINT, linewidth=0.9)
    every = max(1, len(at) // 12)
    names = [short(t) for t in found.timescales[::every]]
    axis.set_xticks(at[::every], names, rotation=45, ha="right", fontsize=7.5)
    axis.set_xlabel(
        f"mean timescale of the {found.group} silenced units of layer {found.layer}, steps",
        fontsize=9,
    )
    axis.set_ylabel("perplexity without / with them", fontsize=9)
    style.legend_right(axis, title="training count")
    style.title(made, f"{found.label}: which words need which timescales")
    return made
