"""Checks the checkpoint from which a run resumes against the one it would write (see checkpoint_check.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .checkpoint_check import LARGEST, check_finite, check_like, check_tensor, named, refuse
from .loop import Trainer
from .nt_asgd import NonMonotonicASGD
from .rng import check_rng_state

# The state that these optimizers keep for a parameter consists of numbers and of tensors with the parameter's
# shape. Other optimizers may store anything.
ELEMENTWISE = (torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, NonMonotonicASGD)
MOMENTUM = "momentum_buffer"  # None before the first step
SQUARES = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")


def check_parts(checkpoint: dict[str, Any], t: Trainer, path: Path) -> None:
    """Raises ValueError unless the checkpoint's config has all parts of this run's config."""
    for part in t.settings:
        if part not in checkpoint["config"]:
            raise ValueError(f"{path}: config has no {part!r}; accepted: a checkpoint of tsm-train")


def check_training(checkpoint: dict[str, Any], t: Trainer, path: Path) -> None:
    """Raises ValueError, before anything is changed, unless this run can resume from the checkpoint."""
    found = checkpoint["train_state"]
    own = t.state.to_dict()
    for name in (*own, "scheduler", "generators", "carried", "trained_weights"):
        if name not in found:
            raise ValueError(f"{path}: train_state has no {name!r}; accepted: all of its values")
    _check_progress({name: found[name] for name in own}, own, t, path)
    if not isinstance(found["scheduler"], dict):
        raise refuse(path, "train_state.scheduler", found["scheduler"], "a table")
    _check_generators(found["generators"], t, path)
    _check_carried(found["carried"], t, path)
    if found["trained_weights"] is not None:
        weights = {name: p.detach() for name, p in t.model.named_parameters()}
        check_like(found["trained_weights"], weights, path, "train_state.trained_weights")
    if not t.config.reset_optimizer:
        _check_optimizer(checkpoint["optimizer"], t.optimizer, path)


def _check_progress(found: dict[str, Any], own: dict[str, Any], t: Trainer, path: Path) -> None:
    values = found.pop("best_values"), own.pop("best_values")
    check_like(found, own, path, "train_state")
    if not isinstance(values[0], dict) or not all(
        type(name) is str and type(value) in (int, float) for name, value in values[0].items()
    ):
        raise refuse(path, "train_state.best_values", values[0], "a table of numbers")
    if found["epoch"] < 1:
        raise refuse(path, "train_state.epoch", found["epoch"], "1 or more")
    with named(path, "train_state.epoch"):
        batches = t.task.batches_per_epoch(found["epoch"])
    if found["index"] > batches:
        raise refuse(path, "train_state.index", found["index"], f"0 to {batches:,}")


def _check_generators(found: Any, t: Trainer, path: Path) -> None:
    where = "train_state.generators"
    if not isinstance(found, list) or not found:
        raise refuse(path, where, found, "a list with one entry per process")
    for i, state in enumerate(found):
        check_rng_state(state, t.world.device, path, f"{where}[{i}]")


def _check_carried(found: Any, t: Trainer, path: Path) -> None:
    where = "train_state.carried"
    if found is None:
        return
    if not isinstance(found, list) or len(found) != len(t.model.layers):
        raise refuse(path, where, found, f"None, or {len(t.model.layers)} tables, one per layer")
    rows = next((v.shape[0] for v in _tensors(found) if v.dim() == 2), 0)
    for i, (state, layer) in enumerate(zip(found, t.model.layers, strict=True)):
        own = {name: value.cpu() for name, value in layer.zero_state(rows).items()}
        check_like(state, own, path, f"{where}[{i}]")


def _tensors(found: list[Any]) -> list[Tensor]:
    tables = [layer.values() for layer in found if isinstance(layer, dict)]
    return [value for table in tables for value in table if isinstance(value, Tensor)]


def _check_optimizer(found: dict[str, Any], optimizer: torch.optim.Optimizer, path: Path) -> None:
    own = optimizer.state_dict()
    if set(found) != set(own):
        raise refuse(path, "optimizer", sorted(map(str, found)), ", ".join(own))
    groups = found["param_groups"]
    if not isinstance(groups, list) or len(groups) != len(own["param_groups"]):
        raise refuse(path, "optimizer.param_groups", groups, f"{len(own['param_groups'])} tables")
    for i, (group, mine) in enumerate(zip(groups, own["param_groups"], strict=True)):
        where = f"optimizer.param_groups[{i}]"
        if not isinstance(group, dict) or "params" not in group:
            raise refuse(path, where, group, "a table with params")
        check_like(group["params"], mine["params"], path, f"{where}.params")
        if group["params"] != mine["params"]:
            raise refuse(path, f"{where}.params", group["params"], f"{mine['params']}")
        for name, value in mine.items():
            _check_setting(group.setdefault(name, value), value, path, f"{where}.{name}")
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = found["state"]
    if not isinstance(state, dict) or not set(state) <= set(range(len(parameters))):
        raise refuse(path, "optimizer.state", state, f"a table of 0 to {len(parameters) - 1}")
    for i, values in state.items():
        _check_state(values, parameters[i].detach(), optimizer, path, f"optimizer.state.{i}")


def _check_setting(value: Any, own: Any, path: Path, where: str) -> None:
    """Checks a value of a parameter group. Options that select kernels, such as `fused`, are True, False, or
    None (torch decides)."""
    if isinstance(own, bool) or own is None:
        if isinstance(value, Tensor) or value not in (True, False, None):
            raise refuse(path, where, value, "True, False or None")
    elif where.endswith(".params"):
        return
    elif isinstance(own, (int, float)):
        check_like(value, float(own), path, where)
    else:
        check_like(value, own, path, where)


def _check_state(
    values: Any, parameter: Tensor, optimizer: torch.optim.Optimizer, path: Path, where: str
) -> None:
    if not isinstance(values, Mapping) or not all(type(name) is str for name in values):
        raise refuse(path, where, values, "a table of tensors and numbers")
    for name, value in values.items():
        field = f"{where}.{name}"
        if name == "step":
            _check_step(value, path, field)
        elif isinstance(optimizer, ELEMENTWISE) and (value is not None or name != MOMENTUM):
            check_tensor(value, parameter.cpu(), path, field)
        elif isinstance(value, Tensor):
            check_finite(value, path, field)
        elif value is not None:
            check_like(value, 0.0, path, field)
        if name in SQUARES and isinstance(value, Tensor) and bool((value < 0).any()):
            raise ValueError(f"{path}: {field} has negative numbers; accepted: 0 or more")


def _check_step(value: Any, path: Path, where: str) -> None:
    one = isinstance(value, Tensor) and value.numel() == 1 and value.dtype == torch.float32
    number = value.item() if one else value
    if type(number) not in (int, float) or not 0 <= number < LARGEST:
        raise refuse(path, where, value, "a number, 0 or more")
