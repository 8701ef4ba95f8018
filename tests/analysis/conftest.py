"""Tiny untrained models of every architecture, each with a tiny task of its family."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from tsm.plugin.analysis.probes.subject import Subject
from tsm.plugin.archs import build_model, get_architecture
from tsm.plugin.cells import get_cell
from tsm.plugin.data.vocab import DICT
from tsm.plugin.tasks import TASKS
from tsm.plugin.tasks.text import TextTask
from tsm.plugin.train.checkpoint import to_bytes
from tsm.plugin.trained import Trained, open_trained

# family -> a tiny task of that family that needs no data
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "lm": (
        "language_modeling",
        dict(generated_tokens=3000, tokens_per_sample=10, test_batch_size=4),
    ),
    "classifier": ("frequency", dict(frequency_valid=12, batch_size=6)),
    "tagger": (
        "copy",
        dict(copy_length=3, copy_length_max=7, copy_items=3, copy_train=8, copy_valid=12),
    ),
}
UNITS = 12


def tiny_checkpoint(
    arch: str, path: Path, task_name: str = "", update: int = 1, **settings: Any
) -> Path:
    """A checkpoint of an untrained model, for `task_name` or the small task of its family."""
    family = get_architecture(arch).model
    name, config = _task(family, task_name)
    task = TASKS.get(name)(TASKS.get(name).Config(**config))
    given = {**task.model_arguments(), **_widths(family)}
    given |= task.model_wishes(get_cell(build_model(arch, **{**given, **settings}).settings.cell))
    torch.manual_seed(update)
    model = build_model(arch, **{**given, **settings})
    text, assets = {}, {}
    if isinstance(task, TextTask):
        text = {"dictionary": task.vocab.fingerprint(), "tokenizer": task.tokenizer}
        assets = {DICT: torch.frombuffer(bytearray(task.assets()[DICT]), dtype=torch.uint8)}
    values = dataclasses.asdict(task.config)
    checkpoint = {
        "model": model.state_dict(),
        "config": {
            "model": model.config,
            "task": {"name": name, **values},
            "text": text,
            "criterion": task.criterion,
        },
        "optimizer": {},
        "train_state": {"update": update},
        "assets": assets,
    }
    path.write_bytes(to_bytes(checkpoint))
    return path


def _task(family: str, name: str) -> tuple[str, dict[str, Any]]:
    if not name:
        return SMALL[family]
    if name == "dyck2":
        return name, dict(dyck_length=40, dyck_train=4, dyck_valid=4, dyck_test=30)
    if name == "adding":
        return name, dict(adding_length=9, adding_valid=6)
    return name, {}


def _widths(family: str) -> dict[str, Any]:
    return {"decoder_hidden_size": UNITS, **({"decoder_embed_dim": 6} if family == "lm" else {})}


@pytest.fixture(scope="session")
def make_trained(tmp_path_factory):
    """make_trained(arch, task="", **settings) -> Trained, from a separate file."""

    @cache
    def make(arch: str, task: str = "", **settings: Any) -> Trained:
        folder = tmp_path_factory.mktemp("tiny")
        return open_trained(tiny_checkpoint(arch, folder / "checkpoint_best.pt", task, **settings))

    return make


@pytest.fixture(scope="session")
def subject_of(make_trained):
    """subject_of(arch, task="", **settings): a subject with two checkpoints of a training run, those of updates
    2 and 5."""

    @cache
    def make(arch: str, task: str = "", **settings: Any) -> Subject:
        trained = make_trained(arch, task, **settings)
        folder = trained.path.parent
        run = [
            tiny_checkpoint(arch, folder / f"checkpoint{n}.pt", task, n, **settings) for n in (2, 5)
        ]
        return Subject(trained, steps=60, rows=8, run=run)

    return make
