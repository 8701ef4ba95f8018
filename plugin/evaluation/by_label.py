"""Precision, recall and F1 of every label, with counts.

precision   share of the items with this prediction that have the label
recall      share of the items with this label that have this prediction: their accuracy
f1          2 / (1/precision + 1/recall)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tasks.base import Batch


@dataclass(frozen=True)
class LabelRow:
    """count: items with the label. predicted: items with that prediction. None stands for 0 / 0."""

    label: str
    count: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None


class LabelSums:
    """Counts for a model with one output per label, for each sequence or each step."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.right, self.count, self.predicted = torch.zeros(3, len(names), dtype=torch.int64)

    def add_batch(self, logits: Tensor, batch: Batch) -> None:
        """logits [B,C] or [B,T,C]; steps of weight 0 do not count."""
        target, guess = batch.target, logits.argmax(-1)
        if batch.weight is not None:
            target, guess = target[batch.weight > 0], guess[batch.weight > 0]
        chosen = {"right": target[guess == target], "count": target, "predicted": guess}
        for name, labels in chosen.items():
            getattr(self, name).add_(labels.flatten().cpu().bincount(minlength=len(self.names)))

    def table(self) -> list[LabelRow]:
        counts = zip(
            self.names,
            *(sums.tolist() for sums in (self.right, self.count, self.predicted)),
            strict=True,
        )
        return [
            LabelRow(
                label,
                count,
                predicted,
                right / predicted if predicted else None,
                right / count if count else None,
                2 * right / (count + predicted) if count + predicted else None,
            )
            for label, right, count, predicted in counts
        ]
