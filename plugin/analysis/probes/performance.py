"""The performance of a model on part of a split, as one number, for ablations."""

from __future__ import annotations

import torch

from ...criterions import CRITERIONS
from ...evaluation.eval_text import perplexity
from ...tasks.language_modeling import LanguageModelingTask
from ...train.evaluate import Totals
from .subject import Subject

LABELS = {
    "perplexity": "perplexity",
    "accuracy": "accuracy",
    "right": "share right",
    "loss": "loss",
}


@torch.no_grad()
def performance(subject: Subject) -> tuple[str, float]:
    """Returns (metric, value): perplexity for text, else the task's accuracy or share of correct answers, else
    its loss."""
    criterion = CRITERIONS.get(subject.trained.config["criterion"])()
    sums = Totals()
    state, text = None, isinstance(subject.task, LanguageModelingTask)
    for batch in subject.batches():
        logits, new = subject.model(batch.x, batch.lengths, state, batch.dt)
        state = new if subject.task.stateful else None
        loss, count = criterion(logits, batch)
        sums.add({"loss": (loss, count)})
        sums.add(subject.task.metrics(logits, batch))
    found = sums.numbers()
    if not found:
        raise ValueError(f"the {subject.split} split is empty")
    means = {name: total / count for name, (total, count) in found.items() if count}
    if text:
        return "perplexity", perplexity(means["loss"] / criterion.unit)
    return next((name, means[name]) for name in ("accuracy", "right", "loss") if name in means)
