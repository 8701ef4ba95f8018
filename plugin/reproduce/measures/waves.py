"""Waves: tests at sampling rates other than the one used in training, with and without the true
time steps."""

from __future__ import annotations

import dataclasses

import torch

from ...tasks.base import Batch
from ...tasks.frequency import FrequencyTask
from ..recipe import RATES
from .base import MEASURES, Found, Subject, evaluate_on


class WithoutClock(FrequencyTask):
    """The same waves, but with the time steps used in training."""

    def batch(self, split: str, epoch: int, index: int) -> Batch:
        found = super().batch(split, epoch, index)
        assert found.dt is not None
        return dataclasses.replace(found, dt=torch.ones_like(found.dt))


@MEASURES.register("other-rates")
def other_rates(subject: Subject) -> Found:
    """Accuracy when samples are closer together or further apart than in training. `_dt`: the model gets the
    true time steps."""
    task = subject.trainer.task
    assert isinstance(task, FrequencyTask) and task.config.frequency_sampling == "sync"
    found = {}
    for rate in RATES:
        step = task.config.frequency_step / rate
        config = dataclasses.replace(task.config, frequency_step=step)
        for kind, end in ((FrequencyTask, "_dt"), (WithoutClock, "")):
            values = evaluate_on(subject, kind(config), "test")
            found[f"accuracy_at_{rate:g}{end}"] = values["accuracy"]
    return found, {}
