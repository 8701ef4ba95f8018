"""Trains from a plan: builds the parts, resumes, trains and reports."""

from __future__ import annotations

import dataclasses
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ... import __version__
from ..archs import build_model, config_class, get_architecture
from ..cells import get_cell, list_cells
from ..criterions import CRITERIONS
from ..layers import Recurrent
from ..layers.choose import Route
from ..models import count_parameters
from ..tasks import TASKS, Task
from ..tasks.text import TextTask
from .distributed import World, join_world
from .loop import Trainer, total_updates
from .optim import make_optimizer
from .plan import Plan, write_config
from .progress import Progress, Writer
from .resume import find_checkpoint, restore, start_from
from .rng import seed_all
from .saver import BEST
from .schedules import LR_SCHEDULERS
from .settings import LoopConfig

Change = Callable[[Any], None]


def run(plan: Plan, watch: Callable[[Trainer], Iterable[Writer]] | None = None) -> Trainer:
    """Train to the end. The returned trainer holds the model and its progress.

    watch: called with the trainer before it starts; returns additional writers that receive the reports.
    """
    with join_world(plan.loop.cpu, plan.loop.device) as world:
        progress = Progress(plan.loop, world.first)
        try:
            with start_trainer(plan, world, progress) as trainer:
                if watch is not None and world.first:
                    progress.writers += watch(trainer)
                announce(trainer, plan)
                with quiet_bf16(trainer):
                    why = trainer.train()
            progress.event("done", summary(trainer, why))
            if trainer.interrupted:
                progress.note(where_to_go_on(trainer))
        finally:
            progress.close()
    return trainer


@contextmanager
def start_trainer(
    plan: Plan, world: World, progress: Progress, change: Change | None = None
) -> Iterator[Trainer]:
    """A new trainer, or one restored from the last checkpoint. Inside the `with` block it has exclusive use of
    --save-dir."""
    trainer = build_trainer(plan, world, progress, change)
    with trainer.saver:
        path = find_checkpoint(plan.loop)
        if path is not None:
            restore(trainer, path)
            s = trainer.state
            progress.note(f"continuing from {path}: epoch {s.epoch}, update {s.update:,}")
        elif plan.loop.finetune_from_model:
            start_from(trainer, plan.loop.finetune_from_model)
        if trainer.saver.writes:  # a checkpoint of other settings keeps its own config.yaml
            write_config(plan)
        yield trainer


def build_trainer(
    plan: Plan, world: World, progress: Progress, change: Change | None = None
) -> Trainer:
    """Builds all parts in their initial state. change: called with the model before its optimizer is made."""
    seed_all(plan.loop.seed)
    task = TASKS.get(plan.task)(plan.task_config, world.rank, world.size)
    check_restarts(task, plan.loop)
    task.check_trainable()
    if world.device.type == "cuda":
        task.keep_on(world.device)
    model = build_model(plan.arch, **model_arguments(plan, task)).to(world.device)
    if change is not None:
        change(model)
    world.same_start(model)
    if world.rank:  # dropout masks differ between ranks
        seed_all(plan.loop.seed + 7919 * world.rank)
    criterion = CRITERIONS.get(plan.criterion or task.criterion)()
    optimizer = make_optimizer(plan.optimizer, model, plan.optimizer_config)
    schedule_class = LR_SCHEDULERS.get(plan.lr_scheduler)
    return Trainer(
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
        graphs=plan.loop.cuda_graphs and world.device.type == "cuda" and world.size == 1,
    )


def check_restarts(task: Task, config: LoopConfig) -> None:
    """Raises ValueError for --reset-share if every segment starts from a zero state anyway."""
    if config.reset_share and not task.stateful:
        why = f"task {task.name!r} carries no state from one batch to the next"
        if getattr(task.config, "reset_state", False):
            why = "--reset-state starts every segment from a zero state"
        raise ValueError(f"reset_share is {config.reset_share!r}; accepted: 0, because {why}")


def model_arguments(plan: Plan, task: Task) -> dict[str, Any]:
    """The chosen settings, the sizes of the data, and the task's preferences for settings that were not
    chosen."""
    chosen = {**task.model_arguments(), **plan.model}
    defaults = {f.name: f.default for f in dataclasses.fields(config_class(plan.arch))}
    known = {**defaults, **get_architecture(plan.arch).preset(chosen), **chosen}
    wishes = task.model_wishes(get_cell(known["cell"])).items()
    options = known["cell_options"]
    return {**{k: v for k, v in wishes if known[k] is None and k not in options}, **chosen}


def describe(plan: Plan, task: Task, model: dict[str, Any], criterion: str) -> dict[str, Any]:
    """A checkpoint's `config`, as plain values."""
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
    """Reports what is trained, on which device, and with which backend."""
    model, world = trainer.model, trainer.world
    trainer.progress.note(trainer.task.summary())
    device = str(world.device) if world.size == 1 else f"{world.size} x {world.device.type}"
    if trainer.task.takes_dt() and not trainer.takes_dt:
        takers = ", ".join(name for name in list_cells() if get_cell(name).takes_dt)
        cell = model.layers[0].cell.name
        trainer.progress.note(f"dt is not used: cell {cell} does not take it (accepted: {takers})")
    options = model.layers[0].options if trainer.task.takes_dt() else {}
    trainer.progress.event(
        "start",
        {
            "arch": plan.arch,
            "task": plan.task,
            "parameters": count_parameters(model),
            "optimizer": plan.optimizer,
            "device": device,
            **{name: options[name] for name in ("eps",) if name in options},
            "backend": backend(model, world.device, plan.loop.bf16),
            **({"save_dir": plan.loop.save_dir} if plan.loop.save else {}),
        },
    )


def where_to_go_on(trainer: Trainer) -> str:
    """The message after a signal: what was saved, and how to continue."""
    good = trainer.saver.last_good
    if good is None or not trainer.saver.writes:
        return "stopped before its end; no checkpoint was saved"
    return (
        f"stopped before its end; update {trainer.state.update:,} is saved in {good}: the same command "
        "continues from there"
    )


@contextmanager
def quiet_bf16(trainer: Trainer) -> Iterator[None]:
    """Replaces torch's warning with a one-line note if the CPU does not support bfloat16."""
    slow = trainer.config.bf16 and trainer.world.device.type == "cpu" and not cpu_has_bf16()
    with warnings.catch_warnings():
        if slow:
            warnings.filterwarnings("ignore", "mkldnn_matmul failed")
            trainer.progress.note(
                "--bf16: this CPU has no bfloat16 arithmetic, so training will be slow"
            )
        yield


def cpu_has_bf16() -> bool:
    return bool(torch.backends.mkldnn.is_available()) and bool(
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def routes(model: torch.nn.Module, device: torch.device, bf16: bool) -> list[Route]:
    """The implementation that runs each layer."""
    found = []
    for layer in model.modules():
        if isinstance(layer, Recurrent):
            dtype = torch.bfloat16 if bf16 else layer.weight_x.dtype
            found.append(layer.route(dtype, device))
    return found


def backend(model: torch.nn.Module, device: torch.device, bf16: bool) -> str:
    """A description of `routes`, with the reason if a route is not the fastest."""
    found = Counter(
        f"{route.name} ({route.why})" if route.why else route.name
        for route in routes(model, device, bf16)
    )
    if len(found) == 1:
        return next(iter(found))
    return ", ".join(f"{count} x {text}" for text, count in found.items())


def summary(trainer: Trainer, why: str) -> dict[str, Any]:
    """The final table."""
    s, c = trainer.state, trainer.config
    begun = s.index / trainer.task.batches_per_epoch(
        s.epoch
    )  # the share of an epoch that was not finished
    values: dict[str, Any] = {
        "stopped": why,
        "arch": trainer.settings["model"]["arch"],
        "parameters": count_parameters(trainer.model),
        "epochs": round(s.epoch - 1 + begun, 3) if begun else s.epoch - 1,
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
