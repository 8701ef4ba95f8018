"""From settings to a finished training: builds the parts, resumes, trains, sums up."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from ... import __version__
from ..archs import build_model
from ..criterions import CRITERIONS
from ..layers import Recurrent
from ..models import count_parameters
from ..tasks import TASKS, Task
from ..tasks.text import TextTask
from .distributed import World, join_world
from .loop import Trainer, total_updates
from .optim import OptimizerConfig, make_optimizer
from .progress import Progress
from .resume import find_checkpoint, restore, start_from
from .rng import seed_all
from .saver import BEST
from .schedules import LR_SCHEDULERS
from .settings import LoopConfig


@dataclass(frozen=True)
class Plan:
    """Everything that `tsm-train` was told."""

    arch: str
    task: str
    task_config: Any
    optimizer: str
    optimizer_config: OptimizerConfig
    lr_scheduler: str
    schedule_config: Any
    loop: LoopConfig
    model: dict[str, Any] = field(default_factory=dict)  # settings that were chosen
    criterion: str = ""  # empty: the task's


def run(plan: Plan) -> Trainer:
    """Train to the end. The trainer that comes back holds the model and where it stands."""
    with join_world(plan.loop.cpu) as world:
        progress = Progress(plan.loop, world.first)
        try:
            trainer = build_trainer(plan, world, progress)
            announce(trainer, plan)
            why = trainer.train()
            progress.event("done", summary(trainer, why))
        finally:
            progress.close()
    return trainer


def build_trainer(plan: Plan, world: World, progress: Progress) -> Trainer:
    """All parts, standing at the start or where the last checkpoint left off."""
    seed_all(plan.loop.seed)
    task = TASKS.get(plan.task)(plan.task_config, world.rank, world.size)
    model = build_model(plan.arch, **{**task.model_arguments(), **plan.model}).to(world.device)
    world.same_start(model)
    if world.rank:  # ranks drop out different units
        seed_all(plan.loop.seed + 7919 * world.rank)
    criterion = CRITERIONS.get(plan.criterion or task.criterion)()
    optimizer = make_optimizer(plan.optimizer, model, plan.optimizer_config)
    schedule_class = LR_SCHEDULERS.get(plan.lr_scheduler)
    trainer = Trainer(
        task=task,
        model=model,
        criterion=criterion,
        optimizer=optimizer,
        schedule=schedule_class(
            plan.schedule_config, plan.optimizer_config.lr, total_updates(task, plan.loop)
        ),
        config=plan.loop,
        settings=describe(plan, task, model.config, criterion.name),
        world=world,
        progress=progress,
    )
    path = find_checkpoint(plan.loop)
    if path is not None:
        restore(trainer, path)
        s = trainer.state
        progress.note(f"going on from {path}: epoch {s.epoch}, update {s.update:,}")
    elif plan.loop.finetune_from_model:
        start_from(trainer, plan.loop.finetune_from_model)
    return trainer


def describe(plan: Plan, task: Task, model: dict[str, Any], criterion: str) -> dict[str, Any]:
    """The plain values of a checkpoint's `config`."""
    text = {}
    if isinstance(task, TextTask):
        text = {"dictionary": task.vocab.fingerprint(), "tokenizer": task.tokenizer}
    return {
        "tsm_version": __version__,
        "model": model,
        "task": {"name": plan.task, **_plain(plan.task_config)},
        "text": text,
        "criterion": criterion,
        "optimizer": {"name": plan.optimizer, **_plain(plan.optimizer_config)},
        "lr_scheduler": {"name": plan.lr_scheduler, **_plain(plan.schedule_config)},
        "loop": _plain(plan.loop),
    }


def _plain(config: Any) -> dict[str, Any]:
    values = dataclasses.asdict(config)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def announce(trainer: Trainer, plan: Plan) -> None:
    """What is trained, on what, and with which backend."""
    model, world = trainer.model, trainer.world
    trainer.progress.note(trainer.task.summary())
    device = str(world.device) if world.size == 1 else f"{world.size} x {world.device.type}"
    trainer.progress.event(
        "start",
        {
            "arch": plan.arch,
            "task": plan.task,
            "parameters": count_parameters(model),
            "optimizer": plan.optimizer,
            "device": device,
            "backend": backend(model, world.device, plan.loop.bf16),
        },
    )


def backend(model: torch.nn.Module, device: torch.device, bf16: bool) -> str:
    """Which recurrence the layers run, and why where it is the slow one."""
    found: dict[str, int] = {}
    for layer in model.modules():
        if isinstance(layer, Recurrent):
            dtype = torch.bfloat16 if bf16 else layer.weight_x.dtype
            why = layer.why_reference(dtype, device)
            if layer.backend == "reference":
                why = "asked for"
            text = f"reference ({why})" if why else "fused"
            found[text] = found.get(text, 0) + 1
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{count} x {text}" for text, count in found.items())


def summary(trainer: Trainer, why: str) -> dict[str, Any]:
    """The final table."""
    s, c = trainer.state, trainer.config
    values: dict[str, Any] = {
        "stopped": why,
        "arch": trainer.settings["model"]["arch"],
        "parameters": count_parameters(trainer.model),
        "epochs": s.epoch - 1,
        "updates": s.update,
        "tokens": int(s.steps),
        "seconds": s.seconds,
    }
    if s.best is not None:
        values |= {f"best_valid_{name}": value for name, value in s.best_values.items()}
        values["best_update"] = s.best_update
    if trainer.saver.writes and s.best is not None:
        values["best_checkpoint"] = f"{c.save_dir}/{BEST}"
    return values
