"""Dyck-2 accuracy by the maximum timescale of a sequence: its largest distance between two matching brackets.

Mahto et al. 2021, figure 2. A sequence is correct if all of its outputs are. The intervals are Wilson score
intervals.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..common.numbers import wilson
from ..config import integers, setting
from ..evaluation.score import score_batches
from ..tasks.dyck2 import Dyck2Task
from .findings.base import register_analysis
from .findings.binned import Bin, Binned
from .needs import DYCK2
from .probes.subject import Subject

EDGES = (5, 10, 25, 50, 75, 100, 125, 150, 200)


@dataclass(frozen=True)
class DyckSettings:
    """settings of the timescales"""

    edges: str = setting(
        ",".join(map(str, EDGES)), "largest timescale of each bin, in increasing order"
    )


@dataclass(frozen=True)
class DyckAccuracy(Binned):
    """One bin per range of maximum timescales."""

    quantity = "accuracy"
    by = "maximum timescale of the sequence, steps"
    counted = "sequences"
    title = "Dyck-2 accuracy by timescale"
    percent = True


@register_analysis(
    "dyck2-timescales",
    "Dyck-2 accuracy by maximum timescale",
    "Mahto et al. 2021, figure 2",
    needs=(DYCK2,),
    settings=DyckSettings,
    several=True,
)
def dyck2_timescales(subject: Subject, settings: DyckSettings) -> DyckAccuracy:
    """Evaluates the whole split."""
    task = subject.task
    assert isinstance(task, Dyck2Task)
    right = [
        task.right(logits, batch).cpu()
        for batch, logits in score_batches(subject.model, task, subject.split, subject.device)
    ]
    reach = task.timescales(subject.split)
    return DyckAccuracy(
        subject.label, binned(reach, torch.cat(right).numpy(), integers(settings.edges))
    )


def binned(reach: np.ndarray, right: np.ndarray, edges: tuple[int, ...]) -> list[Bin]:
    """Bins N sequences by timescale. reach [N]: their timescales. right [N]: which are correct. edges: the
    largest timescale of each bin."""
    if list(edges) != sorted(set(edges)) or edges[0] < 1:
        raise ValueError(f"edges = {edges}; accepted: increasing integers of at least 1")
    bins, below = [], 0
    for edge in [*edges, int(max(reach.max(), edges[-1])) + 1]:
        inside = (reach > below) & (reach <= edge)
        count, good = int(inside.sum()), float(right[inside].sum())
        label = f"{below + 1}-{edge}" if edge <= edges[-1] else f"over {below}"
        if count:
            bins.append(Bin(label, count, good / count, *wilson(good, count)))
        elif edge <= edges[-1]:
            bins.append(Bin(label, 0, None, None, None))
        below = edge
    while len(bins) > 1 and not bins[-1].count:
        bins.pop()
    return bins
