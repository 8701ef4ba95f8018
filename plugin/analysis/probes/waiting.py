"""Later-reset units of the copy task: those whose age keeps growing while the model waits for the signal.

At the last step before the signal the age of such a unit, averaged over sequences, is at least `--waiting`
(default one half) of the T steps of waiting (Chien et al. 2021, section 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...config import setting
from ...tasks.copy_memory import CopyTask
from .groups import pick_layer
from .subject import Subject
from .trace import trace


@dataclass(frozen=True)
class WaitingSettings:
    """settings of later-reset units"""

    waiting: float = setting(
        0.5, "share of the waiting time for which a later-reset unit keeps its age"
    )
    reset_layer: int = setting(0, "the layer to examine; 0: the last one")


def later_reset(ages: np.ndarray, signal: np.ndarray, items: int, waiting: float) -> np.ndarray:
    """bool [H] from ages [B,T,H]. signal [B]: the step (from 0) of the signal. items: symbols to copy."""
    rows = np.arange(len(ages))
    at_end = ages[rows, signal - 1]  # [B,H], after the last step of waiting
    waited = (signal - items)[:, None]
    return (at_end / waited).mean(axis=0) >= waiting


def signal_steps(task: CopyTask, x: np.ndarray) -> np.ndarray:
    """[B]: the position of the signal in tokens x [B,T]."""
    return (x == task.config.copy_symbols + 1).argmax(axis=1)


def waiting_units(
    subject: Subject, settings: WaitingSettings | None = None
) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Returns layer (from 0), ages [B,T,H], signal [B] and later-reset bool [H] on the sample."""
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
