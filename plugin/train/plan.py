"""All settings of a training run, from names and flags, and as config.yaml in the run folder.

This module does not load torch, since `tsm-train --help` is generated from it. In the file each setting has its
own line and is spelled like the flag, with underscores.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..archs import config_class, get_architecture
from ..common.atomic import write_bytes
from ..config import build
from ..tasks import TASKS
from .optim import OPTIMIZERS, OptimizerConfig
from .schedules import LR_SCHEDULERS
from .settings import LoopConfig

# Settings of the loop that affect the trained model; the others concern the device, the length of the run, logs
# and files.
TRAINS = (
    "clip_norm", "update_freq", "alpha", "beta", "reset_share", "seed", "bf16", "finetune_from_model",
)  # fmt: skip
# Those that older versions did not have, with the value that stands for what they did. It is not part of a
# folder's name, so that older runs keep theirs.
ADDED = {"reset_share": 0.0}
# Settings of the model that only affect speed.
UNTRAINED = ("backend",)
# Settings of the model whose default may depend on the data. If given, they count as chosen even if they equal
# the default.
OPEN = ("decoder_embed_dim", "dropoute", "freeze_embed", "read_at", "eps")
RUNS = "runs"
FAMILY_TASK = {"lm": "language_modeling", "classifier": "classification"}
"""The default task of a family, used if none is given and the data does not imply one."""
CONFIG = "config.yaml"
ONCE = ("reset_optimizer", "reset_lr_scheduler", "reset_dataloader", "reset_meters")
"""Flags that apply to one resumption only and must not be stored."""
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Plan:
    """All settings of a `tsm-train` run."""

    arch: str
    task: str
    task_config: Any
    optimizer: str
    optimizer_config: OptimizerConfig
    lr_scheduler: str
    schedule_config: Any
    loop: LoopConfig
    model: dict[str, Any] = field(default_factory=dict)  # settings that were chosen explicitly
    criterion: str = ""  # empty: the task's
    user_dir: str = ""

    def configs(self) -> list[type]:
        """The dataclasses whose fields are this run's flags."""
        parts = (self.loop, self.optimizer_config, self.schedule_config, self.task_config)
        return [*map(type, parts), config_class(self.arch)]


def task_of_folder(data: str | Path | None) -> str:
    """The task for which tsm-preprocess made the folder; empty if there is no such folder or task."""
    from ..data.meta import Meta
    from ..data.staged_folder import META

    if not data or not (Path(data) / META).is_file():
        return ""
    made_for = Meta.load(Path(data)).task
    return made_for if made_for in TASKS else ""


def default_task(family: str, data: str | Path | None) -> str:
    """The task of the preprocessed folder if it belongs to the family, else the default task of the family."""
    made_for = task_of_folder(data)
    if made_for and TASKS.get(made_for).family == family:
        return made_for
    return FAMILY_TASK.get(family, "")


def why_no_task(data: str | Path | None) -> str:
    """The end of an error message: why the data does not determine the task; empty without data."""
    if not data:
        return ""
    if made_for := task_of_folder(data):
        return f"; {data} was preprocessed for {made_for}"
    state = "is not a preprocessed folder" if Path(data).exists() else "does not exist"
    return f"; it is not read from the data, because {data} {state}"


def setting_classes(arch: str, task: str, optimizer: str, lr_scheduler: str) -> list[type]:
    """The dataclasses of the settings that exist for these names."""
    return [
        LoopConfig,
        OPTIMIZERS.get(optimizer).config,
        LR_SCHEDULERS.get(lr_scheduler).Config,
        config_class(arch),
        TASKS.get(task).Config,
    ]


def make_plan(
    arch: str,
    task: str,
    values: Mapping[str, Any],
    optimizer: str = "adam",
    lr_scheduler: str = "fixed",
    criterion: str = "",
    user_dir: str = "",
) -> Plan:
    """The plan made from settings that are spelled like the flags. Settings that do not exist for these names
    are ignored."""
    model_fields = {field.name for field in dataclasses.fields(config_class(arch))}
    plan = Plan(
        arch=arch,
        task=task,
        task_config=build(TASKS.get(task).Config, values, strict=False),
        optimizer=optimizer,
        optimizer_config=build(OPTIMIZERS.get(optimizer).config, values, strict=False),
        lr_scheduler=lr_scheduler,
        schedule_config=build(LR_SCHEDULERS.get(lr_scheduler).Config, values, strict=False),
        loop=build(LoopConfig, values, strict=False),
        model={name: value for name, value in values.items() if name in model_fields},
        criterion=criterion,
        user_dir=user_dir,
    )
    if plan.loop.save_dir:
        return plan
    return dataclasses.replace(
        plan, loop=dataclasses.replace(plan.loop, save_dir=str(run_folder(plan)))
    )


def run_folder(plan: Plan) -> Path:
    """runs/DATA-ARCH-HASH. Equal settings give the same folder, whether or not defaults are spelled out."""
    task = vars(plan.task_config)
    data = Path(os.path.realpath(task["data"])) if task.get("data") else None
    criterion = "" if plan.criterion == TASKS.get(plan.task).criterion else plan.criterion
    loop = {name: getattr(plan.loop, name) for name in TRAINS}
    settings = {
        "names": [plan.arch, plan.task, criterion, plan.optimizer, plan.lr_scheduler],
        "task": {**task, "data": str(data)},
        "optimizer": vars(plan.optimizer_config),
        "lr_scheduler": vars(plan.schedule_config),
        "loop": {name: value for name, value in loop.items() if (name, value) not in ADDED.items()},
        "model": _besides_defaults(plan.arch, plan.model),
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    name = data.name if data is not None else plan.task
    return Path(RUNS, f"{name[:40]}-{plan.arch}-{digest.hexdigest()[:8]}")


def _besides_defaults(arch: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a model that differ from their defaults."""
    usual = {field.name: field.default for field in dataclasses.fields(config_class(arch))}
    found = {name: value for name, value in given.items() if name not in UNTRAINED}
    for name in sorted(found.keys() - {*OPEN}):
        others = {other: value for other, value in found.items() if other != name}
        preset = get_architecture(arch).preset(others)
        if _plain({**usual, **preset}[name]) == _plain(found[name]):
            found = others
    return found


def _plain(value: Any) -> Any:
    """256 for (256,)."""
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def write_config(plan: Plan) -> None:
    """Writes --save-dir/config.yaml; the folder must exist."""
    rows = [f"{name}: {as_yaml(value)}\n" for name, value in as_flags(plan).items()]
    write_bytes(Path(plan.loop.save_dir, CONFIG), "".join(rows).encode())


def as_yaml(value: Any) -> str:
    """A value as JSON, with single escapes instead of surrogate pairs, which YAML reads as two characters."""

    def one(pair: re.Match[str]) -> str:
        code = ord(json.loads(f'"{pair[0]}"'))
        return f"\\U{code:08X}"

    return re.sub(r"\\ud[89ab]..\\ud[cdef]..", one, json.dumps(value))


def as_flags(plan: Plan) -> dict[str, Any]:
    """Every setting that is not None; for the model, only those set in addition to the architecture."""
    names = ("arch", "task", "criterion", "optimizer", "lr_scheduler", "user_dir")
    found = {name: getattr(plan, name) for name in names if getattr(plan, name)}
    for part in (plan.task_config, plan.optimizer_config, plan.schedule_config, plan.loop):
        found |= vars(part)
    return {
        name: value
        for name, value in (found | plan.model).items()
        if value is not None and name not in ONCE
    }


def read_config(path: str | Path) -> dict[str, Any]:
    """The settings in a YAML file: names with numbers, texts, true or false, or lists of numbers."""
    import yaml

    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"--config {path}: more than {MOST_BYTES:,} bytes; accepted: settings")
    try:
        # Nested YAML aliases can expand to more values than fit into memory.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(data, yaml.SafeLoader)):
            raise ValueError("it has an alias (*name); accepted: values written out")
        found = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"--config {path} cannot be read: {why}") from error
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
