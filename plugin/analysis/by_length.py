"""Accuracy by sequence length (Chien et al. 2021, figure 4). evaluation/by_length.py computes the table."""

from __future__ import annotations

from dataclasses import dataclass

from ..evaluation.eval_task import evaluate_task
from .findings.base import NoSettings, register_analysis
from .findings.binned import Bin, Binned
from .needs import ACCURACY, LENGTHS
from .probes.subject import Subject


@dataclass(frozen=True)
class LengthAccuracy(Binned):
    """One bin per range of lengths."""

    quantity = "accuracy"
    by = "length of the sequence, steps"
    counted = "sequences"
    title = "accuracy by length"
    percent = True


@register_analysis(
    "by-length",
    "Accuracy by the length of the sequence",
    "Chien et al. 2021, figure 4",
    needs=(LENGTHS, ACCURACY),
    several=True,
)
def length_accuracy(subject: Subject, settings: NoSettings) -> LengthAccuracy:
    """Evaluates the whole split and leaves out empty bins."""
    found = evaluate_task(
        subject.trained, subject.task, subject.split, subject.device, by_length=True
    )
    bins = [
        Bin(row["label"], row["sequences"], row["accuracy"], row["low"], row["high"])
        for row in found["by_length"]
        if row["sequences"]
    ]
    return LengthAccuracy(subject.label, bins)
