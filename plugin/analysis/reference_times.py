"""Reference times of power-law units on the copy task: when was a unit last reset?

    k_t = t - age_t,   t counted from 1 (dt = 1), age from 0: a unit that is never reset keeps k = 0

as the runtime gives it (time - age). A *later-reset unit* has waited: at the last step before the signal its
age is at least `--waiting` (one half) of the T steps of waiting, on the average over sequences (Chien et al.
2021, section 5.2 and figure A.4: about one unit in five on copy with T = 200 and 500; with variable T the
same units wait, figure A.1 C).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import setting
from ..tasks.copy_memory import CopyTask
from .findings.base import Finding, Row, register_analysis
from .needs import AGE, COPY
from .probes.groups import pick_layer
from .probes.subject import Subject
from .probes.trace import trace


@dataclass(frozen=True)
class WaitingSettings:
    """settings of later-reset units"""

    waiting: float = setting(0.5, "share of the waiting time that a later-reset unit keeps its age")
    reset_layer: int = setting(0, "the layer to look at; 0: the last one")


def reference_times(ages: np.ndarray) -> np.ndarray:
    """k_t [...,T,H] from ages [...,T,H] after steps t = 1 .. T of length 1."""
    return np.arange(1, ages.shape[-2] + 1)[:, None] - ages


def later_reset(ages: np.ndarray, signal: np.ndarray, items: int, waiting: float) -> np.ndarray:
    """bool [H] from ages [B,T,H]; signal [B]: the step (from 0) at which it comes, after `items` symbols."""
    rows = np.arange(len(ages))
    at_end = ages[rows, signal - 1]  # [B,H], after the last step of waiting
    waited = (signal - items)[:, None]
    return (at_end / waited).mean(axis=0) >= waiting


def signal_steps(task: CopyTask, x: np.ndarray) -> np.ndarray:
    """[B]: where the signal stands in tokens x [B,T]."""
    return (x == task.config.copy_symbols + 1).argmax(axis=1)


def waiting_units(
    subject: Subject, settings: WaitingSettings | None = None
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(layer from 0, ages [B,T,H], signal [B], later-reset bool [H]) on the sample."""
    chosen = settings or WaitingSettings()
    if not 0 < chosen.waiting <= 1:
        raise ValueError(f"waiting = {chosen.waiting}; accepted: above 0, at most 1")
    picked = pick_layer("reset_layer", chosen.reset_layer, len(subject.layers))
    layer = len(subject.layers) - 1 if picked is None else picked
    task = subject.task
    assert isinstance(task, CopyTask)
    ages = trace(subject.calls[layer], ["age"])["age"]
    signal = signal_steps(task, subject.sample.x.cpu().numpy())
    return layer, ages, signal, later_reset(ages, signal, task.config.copy_items, chosen.waiting)


@dataclass(frozen=True)
class Example:
    """One sequence: k [T,H], the step (from 1) of the signal, its length."""

    signal: int
    k: np.ndarray


@dataclass(frozen=True)
class ReferenceTimes(Finding):
    """later [H]: which units are later-reset; examples: the shortest and the longest wait of the sample."""

    label: str
    layer: int
    items: int
    waiting: float
    sequences: int
    later: np.ndarray
    examples: list[Example]

    def table(self) -> list[Row]:
        return [
            {
                "example": number,
                "signal": example.signal,
                "step": t + 1,
                "unit": unit,
                "later_reset": bool(self.later[unit]),
                "k": example.k[t, unit],
            }
            for number, example in enumerate(self.examples, 1)
            for unit in range(len(self.later))
            for t in range(len(example.k))
        ]

    def text(self) -> str:
        count, total = int(self.later.sum()), len(self.later)
        example = self.examples[-1]
        before = example.signal - 1
        k = example.k[before - 1]
        rest = k[~self.later]
        follow = (
            f" At the last step before the signal (t = {before}) the others have a median reference "
            f"time of {np.median(rest):.0f}."
            if len(rest)
            else ""
        )
        kept = (
            f" The later-reset units have one of {np.median(k[self.later]):.0f}." if count else ""
        )
        return (
            f"{count} of {total} units ({count / total:.0%}) of layer {self.layer} are later-reset: "
            f"when the signal comes they have kept their age for {self.waiting:.0%} of the wait or "
            f"more, in the mean of {self.sequences} sequences.{follow}{kept}"
        )

    def draw(self, *others: ReferenceTimes):
        from .plot_reference_times import draw_reference_times

        return draw_reference_times(self)


@register_analysis(
    "reference-times",
    "Reference times on the copy task",
    "Chien et al. 2021, section 5.2, figures A.1 C and A.4",
    needs=(AGE, COPY),
    settings=WaitingSettings,
)
def reference(subject: Subject, settings: WaitingSettings) -> ReferenceTimes:
    """k_t of every unit, and which units wait for the signal."""
    layer, ages, signal, later = waiting_units(subject, settings)
    ends = subject.there.sum(axis=1)
    rows = dict.fromkeys([int(signal.argmin()), int(signal.argmax())])
    examples = [
        Example(int(signal[row]) + 1, reference_times(ages[row, : ends[row]])) for row in rows
    ]
    assert isinstance(subject.task, CopyTask)
    return ReferenceTimes(
        subject.label,
        layer + 1,
        subject.task.config.copy_items,
        settings.waiting,
        len(ages),
        later,
        examples,
    )
