"""Reference times of power-law units on the copy task: when was a unit last reset?

    k_t = t - age_t,   t starts at 1 (dt = 1), age at 0: a unit that is never reset keeps k = 0

The runtime reports the same number (time - age). probes/waiting.py defines later-reset units (Chien et al.
2021, section 5.2 and figure A.4: about one unit in five on copy with T = 200 and 500; with variable T the same
units wait, figure A.1 C).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..tasks.copy_memory import CopyTask
from .findings.base import Finding, Row, register_analysis
from .needs import AGE, COPY
from .probes.subject import Subject
from .probes.waiting import WaitingSettings, waiting_units

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (3.0, 2.7)


def reference_times(ages: np.ndarray) -> np.ndarray:
    """k_t [...,T,H] from ages [...,T,H] after steps t = 1 .. T of length 1."""
    return np.arange(1, ages.shape[-2] + 1)[:, None] - ages


@dataclass(frozen=True)
class Example:
    """One sequence: k [T,H] and the step of the signal (from 1)."""

    signal: int
    k: np.ndarray


@dataclass(frozen=True)
class ReferenceTimes(Finding):
    """later [H]: which units are later-reset. examples: sequences with the shortest and the longest wait."""

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
            f"when the signal comes, they have kept their age for {self.waiting:.0%} of the wait or "
            f"more, averaged over {self.sequences} sequences.{follow}{kept}"
        )

    def draw(self, *others: ReferenceTimes):
        return draw_reference_times(self)


@register_analysis(
    "reference-times",
    "Reference times on the copy task",
    "Chien et al. 2021, section 5.2, figures A.1 C and A.4",
    needs=(AGE, COPY),
    settings=WaitingSettings,
)
def reference(subject: Subject, settings: WaitingSettings) -> ReferenceTimes:
    """Computes k_t of every unit and finds the units that wait for the signal."""
    layer, ages, signal, later = waiting_units(subject, settings)
    ends = subject.valid.sum(axis=1)
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


def draw_reference_times(found: ReferenceTimes) -> Figure:
    """Draws one panel per sequence. On the diagonal k = t a unit is reset at every step."""
    made, axes = style.figure(len(found.examples), PANEL, right=1.75, top=0.6)
    for axis, example in zip(axes, found.examples, strict=True):
        t = np.arange(1, len(example.k) + 1)
        axis.plot(t, t, color=style.FAINT, linewidth=0.9, linestyle=":", label="k = t")
        for later, color, name in (
            (False, style.KINDS[0], "other units"),
            (True, style.KINDS[1], "later-reset units"),
        ):
            units = np.flatnonzero(found.later == later)
            for i, unit in enumerate(units):
                label = f"{name} ({len(units)})" if not i else None
                axis.plot(t, example.k[:, unit], color=color, linewidth=0.7, alpha=0.6, label=label)
        axis.axvline(example.signal, color=style.INK, linewidth=0.9, linestyle=style.DASHES[1])
        axis.annotate(
            "signal", (example.signal, 0.98), (-3, 0), xycoords=axis.get_xaxis_transform(),
            textcoords="offset points", fontsize=7.5, ha="right", va="top", color=style.INK,
        )  # fmt: skip
        wait = example.signal - 1 - found.items
        axis.set_title(f"{found.items} symbols, T = {wait}", fontsize=8.5, color=style.INK)
        axis.set_xlabel("step t", fontsize=9)
    axes[0].set_ylabel("reference time $k_t$, steps", fontsize=9)
    style.legend_right(axes[-1], axes[0])
    style.title(made, f"{found.label}: when the units of layer {found.layer} were last reset")
    return made
