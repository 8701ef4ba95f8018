"""The registry of measures, and what they measure: numbers for the tables, details for the figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...registry import Registry
from ...train.evaluate import evaluate
from ...train.loop import Trainer
from ..history import History

Found = tuple[dict[str, Any], dict[str, Any]]  # metrics, details


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


def named(values: Mapping[str, float], prefix: str) -> dict[str, float]:
    return {prefix + name: value for name, value in values.items()}
