"""`Trainer`: tsm-train from Python, with the same settings, checkpoints and resumption.

trainer = Trainer("plstm_lm", "data-bin/mine", lr=2e-3, max_epoch=5, save_dir="runs/mine")
summary = trainer.fit()
trainer.evaluate("test")            {"loss": ..., "ppl": ...}
trainer.model                       a torch.nn.Module
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .archs import get_architecture
from .config import check_types
from .registry import unknown
from .tasks import TASKS
from .train.plan import default_task, make_plan, setting_classes, why_no_task

if TYPE_CHECKING:
    from .train import loop
    from .train.progress import Writer

Callback = Callable[["Trainer", str, dict[str, Any]], None]


class Trainer:
    """Trains an architecture, given by name.

    arch        a name of `tsm.plugin.list_architectures()`
    data        a folder of tsm-preprocess, or a file that the task reads
    task        what is trained; by default what fits the architecture and the data
    optimizer, lr_scheduler, criterion
                names, as for the flags of `tsm-train`
    settings    those of `tsm-train`, spelled like its flags with underscores
    callbacks   called as callback(trainer, kind, values) for every report: "start", "train", "valid",
                "epoch", "done", "note"; trainer.stop() ends training after the current update
    loggers     objects with event(kind, values) and close(), as in tsm.plugin.train.progress
    """

    def __init__(
        self,
        arch: str,
        data: str | Path = "",
        *,
        task: str = "",
        optimizer: str = "adam",
        lr_scheduler: str = "fixed",
        criterion: str = "",
        callbacks: Iterable[Callback] = (),
        loggers: Iterable[Writer] = (),
        **settings: Any,
    ) -> None:
        task = task or default_task(get_architecture(arch).model, data)
        if not task:
            family = get_architecture(arch).model
            fitting = [name for name in TASKS if TASKS.get(name).family == family]
            raise ValueError(
                f"task is missing; {arch} goes with {', '.join(fitting)}{why_no_task(data)}"
            )
        classes = setting_classes(arch, task, optimizer, lr_scheduler)
        known = {field.name for cls in classes for field in dataclasses.fields(cls)}
        for name in settings:
            if name not in known:
                raise unknown("setting", name, sorted(known))
        if data:
            settings["data"] = data
        settings = {name: _plain(value) for name, value in settings.items()}
        for cls in classes:
            check_types(cls, settings)
        self.plan = make_plan(arch, task, settings, optimizer, lr_scheduler, criterion)
        self.callbacks, self.loggers = list(callbacks), list(loggers)
        self._loop: loop.Trainer | None = None
        self._summary: dict[str, Any] = {}

    def fit(self) -> dict[str, Any]:
        """Trains to the end, starting from the last checkpoint in `save_dir` if there is one. Returns the
        summary."""
        from .train.run import run

        run(self.plan, self._watch).stop.requested = None  # a later evaluation is not stopped
        return self._summary

    def _watch(self, started: loop.Trainer) -> list[Writer]:
        self._loop = started
        return [*self.loggers, self]

    def evaluate(self, split: str = "valid") -> dict[str, float]:
        """Metrics of a split with the current weights."""
        found = self._started().evaluate(split)
        if found is None:
            raise ValueError("the training is about to stop; evaluate after fit()")
        return found

    def stop(self) -> None:
        """Ends `fit` after the current update; a checkpoint is written."""
        self._started().stop.ask("Trainer.stop()")

    @property
    def model(self) -> Any:
        """The model that `fit` trains."""
        return self._started().model

    @property
    def save_dir(self) -> Path:
        """The folder with the checkpoints and config.yaml."""
        return Path(self.plan.loop.save_dir)

    def _started(self) -> loop.Trainer:
        if self._loop is None:
            raise ValueError("nothing has been trained yet; call fit() first")
        return self._loop

    def event(self, kind: str, values: dict[str, Any]) -> None:
        """Receives a report of the training and passes it to the callbacks."""
        if kind == "done":
            self._summary = dict(values)
        for callback in self.callbacks:
            callback(self, kind, values)

    def close(self) -> None:
        """Nothing to close."""


def _plain(value: Any) -> Any:
    """A path as a string, a numpy scalar as a Python number."""
    if isinstance(value, Path):
        return str(value)
    return value.item() if isinstance(value, np.generic) else value
