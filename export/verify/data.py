"""The data that a file is scored on, piece by piece: a text, the data of a task, or a generated sample.

A piece is one call of a runner; measure() of quality.py feeds it to all runners.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from ..common.runner import Array

if TYPE_CHECKING:
    from ...plugin.tasks.base import Task

CHUNK = 256
Sums = dict[str, tuple[float, float]]
"""Name -> (sum, divisor for the mean)."""


@dataclass(frozen=True)
class Piece:
    """Inputs of one call. fresh: starts from zero states instead of the last piece's.

    sums(logits): loss and other sums, if there are targets. counted(logits): the outputs that count [n, C].
    """

    x: Array
    dt: Array | None = None
    lengths: Array | None = None
    fresh: bool = False
    sums: Callable[[Array], Sums] = lambda logits: {}
    counted: Callable[[Array], Array] = lambda logits: logits.reshape(-1, logits.shape[-1])


class Data(Protocol):
    """What `measure` runs."""

    @property
    def name(self) -> str:
        """A short description for the report."""
        ...

    def pieces(self) -> Iterator[Piece]: ...

    def values(self, means: dict[str, float]) -> dict[str, float]:
        """Means of all sums for the report: a log-loss in bits, with its perplexity."""
        ...


@dataclass(frozen=True)
class Text:
    """Tokens of a text [n], or of several [N, n], for a language model: every token but the first is scored."""

    tokens: Array
    name: str = "data"
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        if (
            self.tokens.ndim not in (1, 2)
            or self.tokens.dtype.kind not in "iu"
            or self.tokens.shape[-1] < 2
        ):
            raise ValueError(
                f"text is {self.tokens.dtype} {list(self.tokens.shape)}; accepted: integers "
                "[n], at least 2 tokens"
            )

    def pieces(self) -> Iterator[Piece]:
        tokens = np.atleast_2d(self.tokens).astype(np.int64)
        last = tokens.shape[1] - 1
        for start, end in pairwise([*range(0, last, self.chunk), last]):
            target = tokens[:, start + 1 : end + 1]
            yield Piece(tokens[:, start:end], sums=partial(_scored, target=target))

    def values(self, means: dict[str, float]) -> dict[str, float]:
        return in_bits(means)


def _scored(logits: Array, target: Array) -> Sums:
    log_p = np.take_along_axis(log_softmax(logits), target[..., None], axis=-1)
    right = float((logits.argmax(axis=-1) == target).sum())
    return {"loss": (-float(log_p.sum()), target.size), "accuracy": (right, target.size)}


@dataclass(frozen=True)
class Inputs:
    """Random inputs without targets; each piece is a separate sequence."""

    batches: list[Array]
    name: str

    def pieces(self) -> Iterator[Piece]:
        for x in self.batches:
            yield Piece(x, fresh=True)

    def values(self, means: dict[str, float]) -> dict[str, float]:
        return means


def as_data(text: Any) -> Data | None:
    """Converts tokens [n] to a Text; a Data or None is returned unchanged."""
    return text if text is None or hasattr(text, "pieces") else Text(np.asarray(text))


@dataclass(frozen=True)
class TaskData:
    """Data of the task that a model was trained on: one split, up to a number of steps."""

    task: Task
    criterion: Any
    split: str
    most_steps: int
    with_dt: bool
    padded: bool  # a classifier that reads through the padding gets no lengths
    name: str = "data"

    def pieces(self) -> Iterator[Piece]:
        steps = 0
        for batch in self.task.eval_batches(self.split):
            lengths = None if batch.lengths is None or self.padded else batch.lengths.numpy()
            dt = batch.dt.numpy() if batch.dt is not None and self.with_dt else None
            yield Piece(
                batch.x.numpy(),
                dt,
                lengths,
                not self.task.stateful,
                partial(self._sums, batch=batch),
                partial(_weighted, batch=batch),
            )
            steps += batch.x.shape[0] * batch.x.shape[1]
            if steps >= self.most_steps:
                return

    def values(self, means: dict[str, float]) -> dict[str, float]:
        return in_bits(means) if getattr(self.criterion, "unit", None) == math.log(2) else means

    def _sums(self, found: Array, batch: Any) -> Sums:
        logits = torch.from_numpy(np.asarray(found, np.float64)).float()
        loss, count = self.criterion(logits, batch)
        parts = {"loss": (float(loss), float(count)), **self.task.metrics(logits, batch)}
        return {name: (float(total), float(weight)) for name, (total, weight) in parts.items()}


def _weighted(logits: Array, batch: Any) -> Array:
    """The outputs that count in the loss."""
    flat = logits.reshape(-1, logits.shape[-1])
    return flat if batch.weight is None else flat[batch.weight.numpy().reshape(-1) > 0]


def in_bits(means: dict[str, float]) -> dict[str, float]:
    """A loss in nats converted to bits, and its perplexity."""
    loss = means["loss"] / math.log(2)
    return {**means, "loss": loss, "perplexity": 2.0 ** min(loss, 1000.0)}


def log_softmax(logits: Array) -> Array:
    """log-softmax in float64, over the last axis."""
    wide = np.asarray(logits, np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
