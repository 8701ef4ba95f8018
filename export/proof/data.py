"""Loss and accuracy of a runner on real data, for `verify` to compare with float64's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from .runner import Array, Runner, State, feed

if TYPE_CHECKING:
    from ...plugin.tasks.base import Task

CHUNK = 256


class Data(Protocol):
    """Real data: `score` runs all of it and gives plain numbers, "perplexity" or "loss" and "accuracy"."""

    def score(self, runner: Runner) -> dict[str, float]: ...


@dataclass(frozen=True)
class Text:
    """Tokens of a text [n], for a language model: one stream, every token but the first scored."""

    tokens: Array

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.tokens.size < 2 or self.tokens.dtype.kind not in "iu":
            raise ValueError(
                f"text is {self.tokens.dtype} {list(self.tokens.shape)}; accepted: whole numbers "
                "[n], at least 2 tokens"
            )

    def score(self, runner: Runner) -> dict[str, float]:
        tokens = self.tokens.astype(np.int64)
        state: State | None = None
        total, right = 0.0, 0
        for start, end in pairwise([*range(0, len(tokens) - 1, CHUNK), len(tokens) - 1]):
            logits, state = feed(runner, tokens[None, start:end], state)
            target = tokens[start + 1 : end + 1]
            total -= float(_log_softmax(logits[0])[np.arange(end - start), target].sum())
            right += int((logits[0].argmax(axis=-1) == target).sum())
        count = len(tokens) - 1
        bits = total / count / math.log(2)
        return {"loss": bits, "perplexity": 2.0**bits, "accuracy": right / count}


def as_data(text: Any) -> Data | None:
    """Tokens [n] as a Text; a Data, and None, as they are."""
    return text if text is None or hasattr(text, "score") else Text(np.asarray(text))


@dataclass(frozen=True)
class TaskData:
    """The task that a model was trained for, on a split of its data, up to so many steps."""

    task: Task
    criterion: Any
    split: str
    most_steps: int
    with_dt: bool
    padded: bool  # a classifier that reads through the padding: lengths are not given

    def batches(self) -> Iterator[Any]:
        steps = 0
        for batch in self.task.eval_batches(self.split):
            yield batch
            steps += batch.x.shape[0] * batch.x.shape[1]
            if steps >= self.most_steps:
                return

    def score(self, runner: Runner) -> dict[str, float]:
        state: State | None = None
        sums: dict[str, tuple[float, float]] = {}
        for batch in self.batches():
            lengths = None if batch.lengths is None or self.padded else batch.lengths.numpy()
            dt = batch.dt.numpy() if batch.dt is not None and self.with_dt else None
            found, new = feed(runner, batch.x.numpy(), state, dt, lengths)
            state = new if self.task.stateful else None
            logits = torch.from_numpy(np.asarray(found, np.float64)).float()
            loss, count = self.criterion(logits, batch)
            parts = {"loss": (float(loss), float(count)), **self.task.metrics(logits, batch)}
            for name, (total, weight) in parts.items():
                before = sums.get(name, (0.0, 0.0))
                sums[name] = (before[0] + float(total), before[1] + float(weight))
        values = {name: total / max(weight, 1.0) for name, (total, weight) in sums.items()}
        if getattr(self.criterion, "unit", None) == math.log(2):
            values["loss"] /= math.log(2)
            values["perplexity"] = 2.0 ** values["loss"]
        return values


def _log_softmax(logits: Array) -> Array:
    wide = np.asarray(logits, np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found
