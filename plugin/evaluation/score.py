"""Runs a trained model over a split: bits of every token, or a task's batches with their outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..data import FixedLength, LMStreams
from ..data.batching import Tokens
from ..tasks.base import Batch, Task
from ..train.objective import place, takes_dt


class Scores(NamedTuple):
    """target int64 [B,T], bits = -log2 p(target | all before) float64 [B,T].

    They belong to the scored tokens start, start + 1, ... of each of the B streams.
    """

    start: int
    target: np.ndarray
    bits: np.ndarray


@torch.no_grad()
def score_tokens(
    model: Any,
    tokens: Tokens,
    batch_size: int,
    steps: int,
    stateful: bool,
    device: torch.device,
) -> Iterator[Scores]:
    """Scores every token but the first of every stream (data/batching.py), `steps` at a time.

    stateful: the state is carried along, so `steps` does not matter; otherwise each segment starts from zeros.
    One stream (batch_size 1) gives the exact score of the text; more streams cut it into as many parts.
    """
    state = None
    for batch in LMStreams(tokens, batch_size, FixedLength(steps)):
        x, y = (torch.from_numpy(a).to(device) for a in (batch.x, batch.y))
        logits, new = model(x, state=state)
        state = new if stateful else None
        nats = nn.functional.cross_entropy(
            logits.float().flatten(0, 1), y.flatten(), reduction="none"
        )
        bits = nats.view(y.shape).double().cpu().numpy() / math.log(2)
        yield Scores(batch.start, batch.y, bits)


@torch.no_grad()
def score_batches(
    model: Any, task: Task, split: str, device: torch.device
) -> Iterator[tuple[Batch, Tensor]]:
    """(batch, logits) for all batches of "valid" or "test"."""
    dt, state = takes_dt(model), None
    for batch in task.eval_batches(split):
        batch = place(batch, device, dt)
        logits, new = model(batch.x, batch.lengths, state, batch.dt)
        state = new if task.stateful else None
        yield batch, logits
