"""Makes the summary of a run that has ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from ...models import count_parameters
from ...train.loop import Trainer
from ...train.run import backend
from ..history import History, plain, thinned
from ..measures.base import Found
from ..recipe import Variant
from ..store import Summary
from .machine import hardware, versions
from .origin import origin
from .programs import PROGRAMS

# Settings of the loop that affect the result; the others only affect logs and files.
LOOP = (
    "seed", "clip_norm", "alpha", "beta", "update_freq", "reset_share", "bf16",
    "best_checkpoint_metric",
)  # fmt: skip


def summarise(
    variant: Variant,
    trainer: Trainer,
    history: History,
    found: Found,
    complete: bool,
    why: str,
    updates: int,
    made: dict[str, str],
) -> Summary:
    """The summary of a training run. updates: its limit, 0 for none. made: its origin."""
    s, loop, device = trainer.state, trainer.config, trainer.world.device
    an_epoch = trainer.task.batches_per_epoch(s.epoch)
    metrics: dict[str, Any] = {f"valid_{name}": value for name, value in s.best_values.items()}
    if metrics:
        metrics["best_update"] = s.best_update
    if (pace := history.pace()) is not None:
        metrics["ms_an_update"] = 1e3 * pace
    return Summary(
        home=variant.home,
        variant=variant.name,
        seed=loop.seed,
        complete=complete,
        stopped=why,
        epochs=round(s.epoch - 1 + s.index / an_epoch, 3),
        of_epochs=variant.epochs,
        updates=s.update,
        of_updates=updates,
        metrics=plain({**metrics, **found[0]}),
        seconds=round(s.seconds, 1),
        precision="bfloat16" if loop.bf16 else "float32",
        backend=backend(trainer.model, device, loop.bf16),
        hardware=hardware(device),
        versions=versions(),
        parameters=count_parameters(trainer.model),
        config=_config(trainer.settings),
        history=thinned(history.rows),
        details=plain(found[1]),
        origin=made,
    )


def compute(variant: Variant, seed: int, settings: Mapping[str, Any], data: str) -> Summary:
    """The summary of a run without training."""
    began = time.monotonic()
    settings = {"steps": variant.updates, **settings}
    metrics, details = PROGRAMS.get(variant.program)(variant.name, settings, data)
    return Summary(
        home=variant.home,
        variant=variant.name,
        seed=seed,
        complete=True,
        stopped="computed",
        epochs=0.0,
        of_epochs=0,
        updates=settings["steps"],
        of_updates=variant.updates,
        metrics=plain(metrics),
        seconds=round(time.monotonic() - began, 1),
        precision="float64",
        backend="none",
        hardware=hardware(torch.device("cpu")),
        versions=versions(),
        details=plain(details),
        origin=origin(variant.home, variant.name, seed, data),
    )


def _config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the training run, without paths."""
    parts = {name: dict(settings[name]) for name in ("model", "task", "optimizer")}
    parts["task"].pop("data", None)
    loop = {name: settings["loop"][name] for name in LOOP}
    return {**parts, "loop": loop, "criterion": settings["criterion"]}
