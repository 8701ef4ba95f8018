"""A run's settings as a YAML file in its folder: `tsm-train --config runs/NAME/config.yaml` runs it again.

One line per setting, spelled like the flags with underscores. The values are JSON, which is YAML as well.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..common.atomic import write_bytes
from .plan import Plan

CONFIG = "config.yaml"
MOST_BYTES = 1 << 20


def write_config(plan: Plan) -> None:
    """Write --save-dir/config.yaml, which is there already."""
    rows = [f"{name}: {json.dumps(value)}\n" for name, value in as_flags(plan).items()]
    write_bytes(Path(plan.loop.save_dir, CONFIG), "".join(rows).encode())


def as_flags(plan: Plan) -> dict[str, Any]:
    """Every setting that is not None; of the model those that were chosen besides the architecture."""
    names = ("arch", "task", "criterion", "optimizer", "lr_scheduler", "user_dir")
    found = {name: getattr(plan, name) for name in names if getattr(plan, name)}
    for part in (plan.task_config, plan.optimizer_config, plan.schedule_config, plan.loop):
        found |= vars(part)
    return {name: value for name, value in (found | plan.model).items() if value is not None}


def read_config(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file: names with numbers, texts, true or false, or lists of numbers."""
    import yaml

    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"--config {path}: more than {MOST_BYTES:,} bytes; accepted: settings")
    try:
        found = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"--config {path} is not YAML: {why}") from error
    if not isinstance(found, dict):
        raise ValueError(
            f"--config {path} is {type(found).__name__}; accepted: settings, name: value"
        )
    for name, value in found.items():
        plain = [*value] if isinstance(value, list) else [value]
        if type(name) is not str or not all(
            part is None or type(part) in (bool, int, float, str) for part in plain
        ):
            raise ValueError(
                f"--config {path}: {name} is {value!r}; accepted: a number, a text, true, false, or "
                "a list of numbers"
            )
    return found
