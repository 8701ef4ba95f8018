"""Data kept on the device gives the same batches as data that is read on demand."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
import torch

from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.data import batching
from tsm.plugin.reproduce.stand_in import make_stand_in
from tsm.plugin.tasks import TASKS, Batch

CASES = {
    "copy": ("copy", "", {"copy_length": 7, "copy_train": 60, "copy_valid": 20}),
    "variable": ("copy", "", {"copy_length": 5, "copy_length_max": 9, "copy_train": 60}),
    "fresh": ("copy", "", {"copy_length": 5, "copy_fresh": True, "copy_train": 60}),
    "adding": ("adding", "", {"adding_length": 9, "adding_updates": 3, "adding_valid": 8}),
    "dyck2": ("dyck2", "", {"dyck_length": 40, "dyck_train": 40, "dyck_valid": 9, "dyck_test": 9}),
    "frequency": ("frequency", "", {"frequency_train": 16, "frequency_valid": 9}),
    "smnist": ("smnist", "mnist", {}),
    "psmnist": ("psmnist", "mnist", {}),
    "scifar": ("scifar", "cifar-10", {"permute": 2}),
    "characters": ("language_modeling", "ptb-char", {"tokens_per_sample": 11}),
    "random-bptt": ("language_modeling", "ptb", {"tokens_per_sample": 11, "random_bptt": True}),
    "generated": ("language_modeling", "", {"generated_tokens": 1000}),
    "reviews": ("classification", "imdb", {"max_length": 12}),
    "fixed-length": ("classification", "imdb", {"max_length": 12, "fixed_length": True}),
    "series": ("series", "series", {}),
    "steps": ("series_steps", "series_steps", {}),
    "whole": ("classification", "imdb", {"max_length": 4000}),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name in ("mnist", "cifar-10", "ptb-char", "ptb", "imdb"):
        make_stand_in(name, root / name)
    x = np.arange(54, dtype=np.float32).reshape(9, 3, 2)
    extras = {"lengths": 1 + np.arange(9) % 3, "dt": x[:, :, 0] + 1}
    np.savez(root / "series.npz", x=x, y=np.arange(9) % 2, **extras)
    np.savez(root / "series_steps.npz", x=x, y=x.sum(2), **extras)
    for name, more in (("series", []), ("series_steps", ["--per-step"])):
        files = [f"--{s}pref={root / name}.npz" for s in ("train", "valid", "test")]
        assert preprocess([*files, *more, "--destdir", str(root / name)]) == 0
    return root


def same(a: Batch, b: Batch) -> bool:
    for field in dataclasses.fields(Batch):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if not isinstance(left, torch.Tensor):
            assert left == right, field.name
        else:
            assert left.dtype == right.dtype and torch.equal(left.cpu(), right.cpu()), field.name
    return True


def test_every_task_has_a_case():
    assert {name for name, _, _ in CASES.values()} == set(TASKS)


@pytest.mark.parametrize("limit", [batching.KEPT_BYTES, 100], ids=["kept", "too-large"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", CASES)
def test_same_batches(case, device, limit, folders, monkeypatch):
    monkeypatch.setattr(batching, "KEPT_BYTES", limit)
    name, data, settings = CASES[case]
    cls = TASKS.get(name)
    config = cls.Config(data=str(folders / data) if data else "", batch_size=4, **settings)
    plain, kept = cls(config), cls(config)
    kept.keep_on(torch.device(device))
    for split in ("train", "valid", "test", "train"):
        for epoch, start in ((1, 0), (2, 1)):
            both = [
                list(
                    task.train_batches(epoch, start)
                    if split == "train"
                    else task.eval_batches(split)
                )
                for task in (plain, kept)
            ]
            assert len(both[0]) == len(both[1]) > 0
            assert all(same(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("limit, kept", [(batching.KEPT_BYTES, True), (100, False)])
def test_what_is_too_large_is_not_kept(limit, kept, folders, monkeypatch):
    monkeypatch.setattr(batching, "KEPT_BYTES", limit)
    words, reviews = (
        TASKS.get(name)(TASKS.get(name).Config(data=str(folders / data), batch_size=4))
        for name, data in (("language_modeling", "ptb"), ("classification", "imdb"))
    )
    for task in (words, reviews):
        task.keep_on(torch.device("cpu"))
        next(task.train_batches(1))
    assert ("train" in words._rows) == kept
    assert (reviews._opened["train"].table is not None) == kept


def test_a_batch_outlives_the_next(folders):
    """Data kept on the device is not overwritten: a batch still holds its data after others were made."""
    config = TASKS.get("language_modeling").Config(data=str(folders / "ptb"), batch_size=4)
    task = TASKS.get("language_modeling")(config)
    task.keep_on(torch.device("cpu"))
    batches = list(task.train_batches(1))
    copies = [batch.x.clone() for batch in task.train_batches(1)]
    assert all(torch.equal(batch.x, copy) for batch, copy in zip(batches, copies, strict=True))
    assert all(torch.equal(a.target[:, -1], b.x[:, 0]) for a, b in pairwise(batches))
