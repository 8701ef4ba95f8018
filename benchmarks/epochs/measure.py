"""Measures epochs of a recipe: training, validation and saving."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...plugin.reproduce.data import DataRoom
from ...plugin.reproduce.recipes.catalogue import experiments
from ...plugin.reproduce.runs.plan import plan_of, settings_of
from ...plugin.train.distributed import join_world
from ...plugin.train.progress import Progress
from ...plugin.train.run import start_trainer
from .nn_lstm import replace_layers

NN_LSTM = "nn.LSTM"


@dataclass(frozen=True)
class Row:
    """Seconds of an epoch, means over all epochs but the first."""

    recipe: str
    layers: str
    seconds: float
    training: float
    validation: float
    saving: float
    updates: int  # of an epoch
    valid_losses: list[float]  # after each epoch, also the first; in the criterion's unit


class Stopwatch:
    """A receiver of a trainer's reports that also measures its validations and saves."""

    def __init__(self, trainer: Any) -> None:
        self.epochs: list[dict[str, float]] = []
        self.losses: list[float] = []
        self._now = {"validation": 0.0, "saving": 0.0}
        self._began = time.perf_counter()
        trainer.evaluate = self._timed("validation", trainer.evaluate)
        trainer.save = self._timed("saving", trainer.save)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._now[name] += time.perf_counter() - start

        return run

    def event(self, kind: str, values: Mapping[str, Any]) -> None:
        if kind == "valid":
            self.losses.append(values["loss"])
        if kind == "epoch":
            now = time.perf_counter()
            self.epochs.append({**self._now, "all": now - self._began})
            self._now, self._began = dict.fromkeys(self._now, 0.0), now

    def close(self) -> None: ...


def measure(
    recipe: str,
    home: str,
    name: str,
    layers: str,
    data: DataRoom,
    epochs: int,
    cpu: bool = False,
    smoke: bool = False,
) -> Row:
    """Trains one epoch more than are counted. recipe: its name in the row; home, name: the experiment and its
    variant; layers: nn.LSTM, or anything else for tsm's. smoke: a tiny model."""
    (experiment,) = experiments(home)
    variant = experiment.variant(name)
    if smoke:
        known = settings_of(variant)
        small = {k: v for k, v in experiment.smoke.items() if k in known}
        variant = replace(variant, settings={**variant.settings, **small})
    with tempfile.TemporaryDirectory() as folder, join_world(cpu) as world:
        found = data.folder(variant.data)
        plan = plan_of(variant, 1, folder, found, cpu, not cpu, epochs + 1, 0)
        progress = Progress(plan.loop, world.first)
        change = replace_layers if layers == NN_LSTM else None
        with start_trainer(plan, world, progress, change) as trainer:
            watch = Stopwatch(trainer)
            progress.writers.append(watch)
            trainer.train()
        progress.close()
        counted = watch.epochs[1:]
        updates = trainer.state.update // len(watch.epochs)
    mean = {k: sum(e[k] for e in counted) / len(counted) for k in ("all", "validation", "saving")}
    training = mean["all"] - mean["validation"] - mean["saving"]
    times = (mean["all"], training, mean["validation"], mean["saving"])
    return Row(recipe, layers, *times, updates, watch.losses)
