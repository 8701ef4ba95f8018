"""Scores of the trained model on the test split, and of the training itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...evaluation.by_length import LengthSums
from ...evaluation.eval_task import original_lengths
from ...evaluation.score import score_batches
from ...tasks.classification import ClassificationTask
from ...tasks.copy_memory import CopyTask
from ...tasks.dyck2 import Dyck2Task
from ...train.checkpoint import load_weights, read_checkpoint
from ...train.loop import updates_per_epoch
from ...train.objective import precision
from ...train.saver import LAST
from ..history import first_update
from ..recipe import ELSEWHERE
from .base import MEASURES, Found, Subject, evaluate_on, named

SHARES = (50, 90, 99)
REACH = 25  # width of a bin of Dyck-2's timescales


@MEASURES.register("test")
def test(subject: Subject) -> Found:
    """The criterion and the task's metrics on the test split."""
    return named(evaluate_on(subject, subject.trainer.task, "test"), "test_"), {}


@MEASURES.register("last")
def last(subject: Subject) -> Found:
    """Test scores at the end of training, not at the best validation."""
    model, best = subject.trainer.model, read_checkpoint(subject.best)["model"]
    path = subject.best.with_name(LAST)
    load_weights(model, read_checkpoint(path)["model"], path)
    found = evaluate_on(subject, subject.trainer.task, "test")
    load_weights(model, best, subject.best)
    return named(found, "last_"), {}


@MEASURES.register("reached")
def reached(subject: Subject) -> Found:
    """Updates until 50, 90 and 99% validation accuracy. Levels that were not reached have no entry."""
    rows = subject.history.rows
    found = {f"updates_to_{s}": first_update(rows, "accuracy", s / 100) for s in SHARES}
    return {name: update for name, update in found.items() if update is not None}, {}


@MEASURES.register("pace")
def pace(subject: Subject) -> Found:
    """Seconds per epoch, at the mean pace since the start."""
    found = subject.history.pace()
    if found is None:
        return {}, {}
    updates = updates_per_epoch(subject.trainer.task, subject.trainer.config)
    return {"seconds_an_epoch": found * updates}, {}


@MEASURES.register("generalisation")
def generalisation(subject: Subject) -> Found:
    """Copy task: accuracy at lengths other than the one used in training."""
    task = subject.trainer.task
    assert isinstance(task, CopyTask)
    rows = 8 if subject.smoke else 1000
    found = {}
    for length in ELSEWHERE:
        T = max(length // 50, 1) if subject.smoke else length
        changes = {"copy_length": T, "copy_length_max": 0, "copy_valid": rows, "copy_train": 1}
        other = CopyTask(dataclasses.replace(task.config, **changes))
        found[f"accuracy_at_{length}"] = evaluate_on(subject, other, "test")["accuracy"]
    return found, {}


@MEASURES.register("by_length")
def by_length(subject: Subject) -> Found:
    """Accuracy on texts, by their length."""
    task = subject.trainer.task
    assert isinstance(task, ClassificationTask)
    lengths = original_lengths(task, "test")
    assert lengths is not None
    right = np.concatenate(
        [
            (logits.argmax(-1) == batch.target).cpu().numpy()
            for batch, logits in _scored(subject, "test")
        ]
    )
    sums = LengthSums()
    for length in np.unique(lengths.numpy()):
        inside = right[lengths.numpy() == length]
        sums.add(int(length), len(inside), float(inside.sum()), float(len(inside)))
    rows = sums.table(limit=task.config.max_length)
    return {}, {"by_length": [dataclasses.asdict(row) for row in rows]}


@MEASURES.register("by_reach")
def by_reach(subject: Subject) -> Found:
    """Dyck-2: correct sequences by the longest distance between matching brackets."""
    task = subject.trainer.task
    assert isinstance(task, Dyck2Task)
    right = np.concatenate(
        [task.right(logits, batch).cpu().numpy() for batch, logits in _scored(subject, "test")]
    )
    group = task.timescales("test") // REACH
    rows = [
        {
            "low": int(g) * REACH,
            "high": (int(g) + 1) * REACH - 1,
            "sequences": int((group == g).sum()),
            "accuracy": float(right[group == g].mean()),
        }
        for g in np.unique(group)
    ]
    return {}, {"by_reach": rows}


def _scored(subject: Subject, split: str) -> Any:
    t = subject.trainer
    t.model.eval()
    with precision(subject.where, subject.bf16):
        yield from score_batches(t.model, t.task, split, subject.where)
