"""Accuracy by sequence length (Chien et al. 2021, figure 4: reviews by their number of words).

bins      up to 50 steps, 51-100, ..., and one above the last edge
interval  Wilson's 95% interval, if each sequence is right or wrong as a whole
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from ..common.numbers import wilson
from ..tasks.base import Batch, Task

BINS = 8


@dataclass(frozen=True)
class Row:
    """A bin of lengths: its number of sequences and their accuracy."""

    label: str
    sequences: int
    accuracy: float | None
    low: float | None
    high: float | None


class LengthSums:
    """Counts of correct and scored answers by exact length. They are binned at the end."""

    def __init__(self) -> None:
        self.sums: dict[int, tuple[int, float, float]] = {}

    def add(self, length: int, sequences: int, right: float, judged: float) -> None:
        old = self.sums.get(length, (0, 0.0, 0.0))
        self.sums[length] = (old[0] + sequences, old[1] + right, old[2] + judged)

    def add_batch(self, task: Task, logits: Tensor, batch: Batch, lengths: Tensor) -> None:
        """Adds the task's accuracy on the rows of each length; lengths [B]."""
        lengths = lengths.to(logits.device)
        for length in torch.unique(lengths).tolist():
            rows = torch.nonzero(lengths == length)[:, 0]
            found = task.metrics(logits[rows], take(batch, rows))
            if "accuracy" not in found:
                raise ValueError(f"--by-length needs a task with an accuracy; {task.name} has none")
            right, judged = map(float, found["accuracy"])
            self.add(int(length), len(rows), right, judged)

    def table(self, edges: Sequence[int] | None = None, limit: int | None = None) -> list[Row]:
        """One row per bin. The default edges are BINS equal steps up to `limit` (or to the longest
        sequence)."""
        if edges is None:
            edges = even_edges(limit or max(self.sums, default=1))
        rows, below = [], 0
        for edge in [*edges, math.inf]:
            label = f"{below + 1}-{edge}" if edge < math.inf else f"over {below}"
            inside = [s for length, s in self.sums.items() if below < length <= edge]
            rows.append(_row(label, *(sum(column) for column in zip(*inside, strict=True))))
            below = int(edge) if edge < math.inf else below
        return rows if rows[-1].sequences else rows[:-1]


def _row(label: str, sequences: float = 0, right: float = 0.0, judged: float = 0.0) -> Row:
    if not judged:
        return Row(label, int(sequences), None, None, None)
    low, high = wilson(right, judged) if judged == sequences else (None, None)
    return Row(label, int(sequences), right / judged, low, high)


def even_edges(limit: int) -> list[int]:
    """400 -> 50, 100, ..., 400"""
    step = max(1, math.ceil(limit / BINS))
    return [*range(step, limit, step), limit]


def take(batch: Batch, rows: Tensor) -> Batch:
    """Selects rows of a batch."""
    values: dict[str, Any] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            values[field.name] = value[rows.to(value.device)]
    return replace(batch, **values)
