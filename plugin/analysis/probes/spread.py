"""Picks a few rows from all over a split, since a split may be sorted (IMDB is sorted by label)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ...evaluation.by_length import take
from ...tasks.base import Batch

PARTS = 8  # rows come from at least this many places in the split


def spread(batches: Sequence[Batch], rows: int) -> list[Batch]:
    """At most `rows` rows, in batches spread evenly over the split; all rows if the split has no more."""
    if sum(len(batch.x) for batch in batches) <= rows:
        return list(batches)
    largest = max(len(batch.x) for batch in batches)
    parts = min(len(batches), rows, max(PARTS, -(-rows // largest)))
    chosen = np.linspace(0, len(batches) - 1, parts).round().astype(int)
    found, left = [], rows
    for done, index in enumerate(chosen):
        share = -(-left // (parts - done))
        many = min(share, len(batches[index].x))
        found.append(take(batches[index], torch.arange(many)))
        left -= many
    return found


@dataclass(frozen=True)
class Sample:
    """The inputs of a model: x [B,T] or [B,T,I], and lengths and dt if the data has them."""

    x: Tensor
    lengths: Tensor | None
    dt: Tensor | None


def one_sample(batches: Sequence[Batch]) -> Sample:
    """Concatenates the rows of all batches, padded on the right to the longest."""
    width = max(batch.x.shape[1] for batch in batches)
    first = batches[0]
    lengths = None
    if first.lengths is not None:
        lengths = torch.cat([b.lengths for b in batches if b.lengths is not None])
    dt = None
    if first.dt is not None:
        dt = torch.cat([_pad(b.dt, width, 1.0) for b in batches if b.dt is not None])
    return Sample(torch.cat([_pad(b.x, width, 0.0) for b in batches]), lengths, dt)


def _pad(values: Tensor, width: int, by: float) -> Tensor:
    """Pads the steps of values [B,T] or [B,T,I] to `width`."""
    missing = width - values.shape[1]
    sides = (0, missing) if values.dim() == 2 else (0, 0, 0, missing)
    return nn.functional.pad(values, sides, value=by)
