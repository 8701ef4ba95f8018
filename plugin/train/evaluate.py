"""Validation: the criterion and the task's own metrics over a whole split."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any

import torch

from ..criterions import Criterion
from ..tasks.base import Sums, Task
from ..tasks.text import TextTask
from .distributed import World
from .objective import place, precision, takes_dt

Values = dict[str, float]


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
    """Metric name -> value over all processes; None where `give_up` said so on the way.

    limit: look at so many batches only.
    """
    was_training = model.training
    model.eval()
    dt = takes_dt(model)
    sums: dict[str, tuple[float, float]] = {}
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
            add(sums, {"loss": (float(loss), float(count))})
            add(sums, task.metrics(logits, batch))
    finally:
        model.train(was_training)
    total: Sums = {}
    for part in world.gather(sums):
        add(total, part)
    if not total.get("loss", (0.0, 0.0))[1]:
        raise ValueError(f"the {split} split has nothing to evaluate")
    return report(total, task, criterion)


def add(total: Sums, more: Sums) -> None:
    """total += more"""
    for name, (value, count) in more.items():
        old = total.get(name, (0.0, 0.0))
        total[name] = (old[0] + value, old[1] + count)


def report(sums: Sums, task: Task, criterion: Criterion) -> Values:
    """Means; the loss in the criterion's unit (bits), and what people call it in the task's field."""
    values = {name: value / count for name, (value, count) in sums.items() if count}
    values["loss"] /= criterion.unit
    return {**values, **named_loss(values["loss"], task, criterion)}


def named_loss(loss: float, task: Task, criterion: Criterion) -> Values:
    """Bits per character of character models, perplexity of other language models."""
    if task.family != "lm" or criterion.unit != math.log(2):
        return {}
    if isinstance(task, TextTask) and task.characters:
        return {"bpc": loss}
    return {"ppl": 2**loss if loss < 1024 else math.inf}
