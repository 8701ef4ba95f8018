"""Makes a training plan from a variant and a seed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ...registry import unknown
from ...train.plan import Plan, make_plan, setting_classes
from ..recipe import Variant

# Runs need no reports, and no checkpoints other than the best and the last.
QUIET = {"log_format": "none", "epoch_checkpoints": False, "hold_checkpoints_seconds": 30.0}
SMOKE_UPDATES = 2


def plan_of(
    variant: Variant,
    seed: int,
    folder: str,
    data: str,
    cpu: bool,
    bf16: bool,
    epochs: int | None = None,
    updates: int | None = None,
    smoke: Mapping[str, Any] | None = None,
) -> Plan:
    """The training plan of a run. epochs, updates: limits that replace those of the recipe. smoke: settings
    that make the run tiny."""
    values: dict[str, Any] = {**QUIET, **variant.settings}
    # Each seed also generates its own data, so that results do not depend on a single data set.
    values |= {
        "seed": seed,
        "data_seed": seed,
        "save_dir": folder,
        "data": data,
        "cpu": cpu,
        "bf16": bf16,
    }
    values["max_epoch"] = epochs if epochs is not None else variant.epochs
    values["max_update"] = updates if updates is not None else variant.updates
    known = settings_of(variant)
    for name in variant.settings:
        if name not in known:
            raise unknown("setting", name, sorted(known))
    if smoke is not None:
        values |= {name: value for name, value in smoke.items() if name in known}
        values |= {"max_update": SMOKE_UPDATES, "max_epoch": 1}
    return make_plan(variant.arch, variant.task, values, variant.optimizer, variant.schedule)


def settings_of(variant: Variant) -> set[str]:
    """The settings that exist for this variant."""
    classes = setting_classes(variant.arch, variant.task, variant.optimizer, variant.schedule)
    return {field.name for cls in classes for field in dataclasses.fields(cls)}
