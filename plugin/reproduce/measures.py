"""Measures of a trained model, by name: numbers for the tables, details for the figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..evaluation import eval_text
from ..evaluation.by_length import LengthSums
from ..evaluation.eval_task import original_lengths
from ..evaluation.score import score_batches
from ..registry import Registry
from ..tasks.classification import ClassificationTask
from ..tasks.copy_memory import CopyTask
from ..tasks.dyck2 import Dyck2Task
from ..tasks.language_modeling import LanguageModelingTask
from ..train.checkpoint import load_weights, read_checkpoint
from ..train.evaluate import evaluate
from ..train.loop import Trainer, updates_per_epoch
from ..train.objective import precision
from ..train.saver import LAST
from ..trained import open_trained
from .history import History, first_update
from .paired import BITS
from .recipe import ELSEWHERE

Found = tuple[dict[str, Any], dict[str, Any]]  # metrics, details
SHARES = (50, 90, 99)
REACH = 25  # width of a bin of Dyck-2's timescales


@dataclass(frozen=True)
class Subject:
    """A finished training run. Its model has the weights of the best checkpoint."""

    trainer: Trainer
    best: Path
    history: History
    smoke: bool = False

    @property
    def where(self) -> Any:
        return self.trainer.world.device

    @property
    def bf16(self) -> bool:
        return self.trainer.config.bf16


MEASURES: Registry[Callable[[Subject], Found]] = Registry("measure")


@MEASURES.register("test")
def test(subject: Subject) -> Found:
    """The criterion and the task's metrics on the test split."""
    return _named(evaluate_on(subject, subject.trainer.task, "test"), "test_"), {}


@MEASURES.register("carried")
def carried(subject: Subject) -> Found:
    """For language models whose state is reset in training: the test score with the state carried instead."""
    task = subject.trainer.task
    assert isinstance(task, LanguageModelingTask)
    other = LanguageModelingTask(dataclasses.replace(task.config, reset_state=False))
    return _named(evaluate_on(subject, other, "test"), "carried_"), {}


@MEASURES.register("last")
def last(subject: Subject) -> Found:
    """Test scores at the end of training, not at the best validation."""
    model, best = subject.trainer.model, read_checkpoint(subject.best)["model"]
    path = subject.best.with_name(LAST)
    load_weights(model, read_checkpoint(path)["model"], path)
    found = evaluate_on(subject, subject.trainer.task, "test")
    load_weights(model, best, subject.best)
    return _named(found, "last_"), {}


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


@MEASURES.register("bins")
def bins(subject: Subject) -> Found:
    """Test perplexity by word frequency (counted over all splits), with intervals, and the bits of every
    sequence (paired.py)."""
    trained = open_trained(subject.best, subject.where)
    config = eval_text.task_config(trained)
    text = eval_text.open_text(trained, subject.trainer.task.config.data, "test")
    steps = eval_text.default_steps(config, 1, text.tokens.vocab_size)
    task = subject.trainer.task
    assert isinstance(task, LanguageModelingTask)
    counts = sum(
        np.bincount(tokens.read(0, len(tokens)), minlength=len(trained.vocab))
        for tokens in task.splits.values()
    )
    wanted = eval_text.Wanted(frequency_bins=True, counts=np.asarray(counts), sequences=True)
    with precision(subject.where, subject.bf16):
        found = eval_text.evaluate_text(
            trained, text, 1, steps, subject.where, wanted, eval_text.Watch()
        )
    rows = found["frequency_bins"]
    metrics: dict[str, Any] = {}
    for i, row in enumerate(rows):
        name = "all" if row["label"] == "all" else f"splits_bin_{i}"
        if row["perplexity"] is not None:
            values = {"": row["perplexity"], "_low": row["low"], "_high": row["high"]}
            metrics |= {name + end: value for end, value in values.items()}
    bits = [[round(value, 2), int(words)] for value, words in found["sequences"]]
    return metrics, {"bins": rows, BITS: bits}


def measure(names: tuple[str, ...], subject: Subject) -> Found:
    """Runs all measures of a variant."""
    metrics: dict[str, Any] = {}
    details: dict[str, Any] = {}
    for name in names:
        more, further = MEASURES.get(name)(subject)
        metrics |= more
        details |= further
    return metrics, details


def evaluate_on(subject: Subject, task: Any, split: str) -> dict[str, float]:
    t = subject.trainer
    found = evaluate(t.model, task, t.criterion, split, t.world, subject.bf16)
    assert found is not None  # nothing can interrupt it
    return found


def _scored(subject: Subject, split: str) -> Any:
    t = subject.trainer
    t.model.eval()
    with precision(subject.where, subject.bf16):
        yield from score_batches(t.model, t.task, split, subject.where)


def _named(values: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {prefix + name: value for name, value in values.items()}
