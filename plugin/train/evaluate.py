"""Validation: the criterion and the task's own metrics over a whole split."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ..criterions import Criterion
from ..tasks.base import Sums, Task
from ..tasks.text import TextTask
from .distributed import World
from .objective import place, precision, takes_dt

Values = dict[str, float]
Numbers = dict[str, tuple[float, float]]


class Totals:
    """Sums over batches in float64. Sums on a GPU stay there until the numbers are needed."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Tensor | float, Tensor | float]] = {}

    def add(self, more: Sums) -> None:
        for name, (value, count) in more.items():
            old = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (old[0] + _exact(value), old[1] + _exact(count))

    def numbers(self) -> Numbers:
        """The sums as plain numbers. This synchronises with a GPU."""
        return {name: (float(value), float(count)) for name, (value, count) in self._sums.items()}


def _exact(value: Tensor | float) -> Tensor | float:
    return value.double() if isinstance(value, Tensor) else value


@torch.no_grad()
def evaluate(
    model: Any,
    task: Task,
    criterion: Criterion,
    split: str,
    world: World,
    bf16: bool = False,
    give_up: Callable[[], bool] = lambda: False,
    limit: int | None = None,
) -> Values | None:
    """Metric name -> value over all processes; None if `give_up` returned true.

    limit: the maximum number of batches to evaluate.
    """
    was_training = model.training
    model.eval()
    dt = takes_dt(model)
    sums = Totals()
    state = None
    try:
        for batch in islice(task.eval_batches(split), limit):
            if give_up():
                return None
            if not len(batch.x):
                continue
            batch = place(batch, world.device, dt)
            with precision(world.device, bf16):
                logits, new = model(batch.x, batch.lengths, state, batch.dt)
            state = new if task.stateful else None
            loss, count = criterion(logits, batch)
            sums.add({"loss": (loss, count)})
            sums.add(task.metrics(logits, batch))
    finally:
        model.train(was_training)
    merged = Totals()
    for part in world.gather(sums.numbers()):
        merged.add(part)
    total = merged.numbers()
    if not total.get("loss", (0.0, 0.0))[1]:
        raise ValueError(f"the {split} split is empty")
    return report(total, task, criterion)


def report(sums: Numbers, task: Task, criterion: Criterion) -> Values:
    """Means; the loss is in the criterion's unit (bits), and is also given under its usual name for the
    task."""
    values = {name: value / count for name, (value, count) in sums.items() if count}
    values["loss"] /= criterion.unit
    return {**values, **named_loss(values["loss"], task, criterion)}


def named_loss(loss: float, task: Task, criterion: Criterion) -> Values:
    """Bits per character for character models, perplexity for other language models."""
    if task.family != "lm" or criterion.unit != math.log(2):
        return {}
    if isinstance(task, TextTask) and task.characters:
        return {"bpc": loss}
    return {"ppl": 2**loss if loss < 1024 else math.inf}
