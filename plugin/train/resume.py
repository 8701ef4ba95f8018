"""Resumes training from a checkpoint, after checking that the settings match."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .checkpoint import (
    FREE_AT_START,
    check_dictionary,
    check_model,
    load_weights,
    read_checkpoint,
    renamed,
)
from .checkpoint_check import named
from .distributed import share_rows
from .loop import Trainer
from .plan import TRAINS, UNTRAINED
from .resume_check import ELEMENTWISE, check_parts, check_training
from .rng import seed_all, set_rng_state
from .saver import BEST, LAST
from .settings import LoopConfig
from .state import Meter, TrainState


def find_checkpoint(config: LoopConfig) -> Path | None:
    """The file to resume from: --restore-file, or the last checkpoint in the save folder, if there is one."""
    path = Path(config.restore_file)
    inside = Path(config.save_dir) / config.restore_file
    if config.restore_file == LAST:
        return inside if config.save and inside.exists() else None
    for candidate in (path, inside):
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"--restore-file {path}: neither {path} nor {inside} exists")


def _read(path: Path) -> dict[str, Any]:
    """The checkpoint; if the last one cannot be read, the error names the best one."""
    try:
        return read_checkpoint(path)
    except ValueError as error:
        if path.name == LAST and path.with_name(BEST).is_file():
            raise ValueError(
                f"{error}; --restore-file {BEST} continues from the best one"
            ) from error
        raise


def restore(t: Trainer, path: Path) -> None:
    """Continues from a checkpoint; the result is bitwise identical to that of an uninterrupted run if the
    number of processes and the settings are the same."""
    checkpoint = t.world.from_first(_read(path) if t.world.first else {})
    check_parts(checkpoint, t, path)
    check_model(checkpoint, t.settings["model"], path)
    check_dictionary(checkpoint, t.settings["text"].get("dictionary"), path)
    if differing := renamed(checkpoint, t.assets()):
        raise ValueError(
            f"checkpoint {path} was trained on data with other names or another order: {'; '.join(differing)}; "
            "preprocess with the same --value-columns and labels, or give another --save-dir"
        )
    c = t.config
    if not c.reset_optimizer:
        _check_same(checkpoint["config"], t.settings, path, "optimizer", ("name",))
    if not c.reset_lr_scheduler:
        _check_same(checkpoint["config"], t.settings, path, "lr_scheduler", ("name",))
    check_training(checkpoint, t, path)
    progress = dict(checkpoint["train_state"])
    schedule, generators = progress.pop("scheduler"), progress.pop("generators")
    carried, trained = progress.pop("carried"), progress.pop("trained_weights")
    state = reset(TrainState.from_dict(progress), c)
    if c.reset_dataloader:
        carried = None
    if state.index:
        keys = tuple(k for k in t.settings["task"] if k != "data")
        _check_same(checkpoint["config"], t.settings, path, "task", keys)
    if _judged_by(checkpoint["config"]) != _judged_by(t.settings):
        state.forget_best()
        t.progress.note("the criterion or metric has changed: the best value so far is discarded")
    if differing := changed_settings(checkpoint["config"], t.settings):
        t.progress.note(f"settings that differ from those in {path}: {', '.join(differing)}")
    load_weights(t.model, checkpoint["model"], path)
    if not c.reset_optimizer:
        _restore_optimizer(t, checkpoint, trained, path)
    if not c.reset_lr_scheduler:
        with named(path, "train_state.scheduler"):
            t.schedule.load_state_dict(schedule)
    factor = t.schedule.factor(state.update + 1)
    if any(row.startswith("lr ") for row in differing) and factor < SMALL:
        t.progress.note(
            f"the schedule multiplies lr by {factor:.2g} now; --reset-lr-scheduler starts a new one"
        )
    t.state = state
    t.carried = share_rows(carried, t.world)
    if t.world.rank < len(generators):
        set_rng_state(generators[t.world.rank], t.world.device)
    else:  # more processes than before
        seed_all(t.config.seed + 7919 * t.world.rank + state.update)
    t.saver.last_good = path


def _restore_optimizer(
    t: Trainer, checkpoint: dict[str, Any], trained: dict[str, Any] | None, path: Path
) -> None:
    """Restores the optimizer's state, and the trained weights if they differ from those to evaluate
    (NT-ASGD)."""
    changed = checkpoint["config"]["optimizer"] != t.settings["optimizer"]
    own = changed or isinstance(t.optimizer, ELEMENTWISE)  # whose groups hold only settings
    _keep_settings(checkpoint["optimizer"], t.optimizer, None if own else KERNELS)
    with named(path, "optimizer"):
        t.optimizer.load_state_dict(checkpoint["optimizer"])
    if trained is not None:
        with torch.no_grad():
            for name, parameter in t.model.named_parameters():
                parameter.copy_(trained[name])


def reset(state: TrainState, config: LoopConfig) -> TrainState:
    """The progress to continue with; the --reset flags reset parts of it."""
    if config.reset_optimizer:
        state.update = state.validated = state.best_update = 0
    if config.reset_dataloader:
        state.epoch, state.index, state.epoch_meter = 1, 0, Meter()
    if config.reset_meters:
        state.forget_best()
        state.epoch_meter, state.interval_meter = Meter(), Meter()
        state.seconds = state.steps = 0.0
    return state


def start_from(t: Trainer, path: str) -> None:
    """Starts a new training run with the weights of a checkpoint (--finetune-from-model)."""
    checkpoint = t.world.from_first(read_checkpoint(path) if t.world.first else {})
    check_parts(checkpoint, t, Path(path))
    check_model(checkpoint, t.settings["model"], path, FREE_AT_START)
    check_dictionary(checkpoint, t.settings["text"].get("dictionary"), path)
    if differing := renamed(checkpoint, t.assets()):
        t.progress.note(
            f"names of the data that differ from those of {path}: {'; '.join(differing)}"
        )
    load_weights(t.model, checkpoint["model"], path)


def changed_settings(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    """The differences from the earlier run: "lr 0.1 -> 0.01", ..."""
    rows = []
    usual = {"loop": asdict(LoopConfig())}  # of settings that the earlier run did not know
    for part in ("model", "task", "optimizer", "lr_scheduler", "loop"):
        for name, new in here[part].items():
            old = there[part].get(name, usual.get(part, {}).get(name, new))
            if old != new and (part != "loop" or name in TRAINS) and name not in UNTRAINED:
                rows.append(f"{name} {old!r} -> {new!r}")
    return rows


SMALL = 0.1
"""Below this factor of the schedule, a new learning rate has hardly any effect."""
KERNELS = ("fused", "foreach")
"""The choice of kernels for the optimizer step depends on this machine, not on the one that wrote the
checkpoint."""


def _check_same(
    there: dict[str, Any], here: dict[str, Any], path: Path, part: str, keys: tuple[str, ...]
) -> None:
    for key in keys:
        old, new = there[part].get(key), here[part].get(key)
        if old != new:
            raise ValueError(
                f"checkpoint {path} has {part} {key} = {old!r}, this run has {new!r}: it cannot "
                "continue; give the same setting, another --save-dir, or take only its weights "
                f"with --finetune-from-model {path}"
            )


def _keep_settings(
    saved: dict[str, Any], optimizer: torch.optim.Optimizer, names: tuple[str, ...] | None
) -> None:
    """Takes the parameter-group fields in `names` from this run and all others from the file. If `names` is
    None, takes all from this run.

    This way an optimizer that keeps its progress in its parameter groups continues from it. The learning rate
    is not changed, since the loop sets it in every update.
    """
    for group, own in zip(saved["param_groups"], optimizer.param_groups, strict=True):
        for name in own if names is None else names:
            if name in own and name not in ("params", "lr"):
                group[name] = own[name]


def _judged_by(config: dict[str, Any]) -> tuple[Any, ...]:
    """The settings that must be equal for two validation values to be comparable."""
    loop = config["loop"]
    names = ("best_checkpoint_metric", "maximize_best_checkpoint_metric")
    return (config["criterion"], *(loop.get(name) for name in names))
