"""Tiny training runs through the command itself, and the files that they leave."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch

from tsm.plugin.cli.train import main
from tsm.plugin.train.checkpoint import read_checkpoint
from tsm.plugin.train.loop import Trainer

TINY = "--arch plstm_lm --decoder-embed-dim 6 --decoder-hidden-size 7 --generated-tokens 1000"
TINY += " --batch-size 4 --bptt 20 --log-format none --log-interval 1 --cpu --lr 0.01"


def shape_of_log(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Runs:
    """Runs `tsm-train` in this process, each run in a folder named after it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch

    def __call__(self, name: str, flags: str = "", base: str = TINY) -> int:
        folder = self.root / name
        return main([*base.split(), "--save-dir", str(folder), *flags.split()])

    def stop_after(self, update: int, name: str, flags: str = "", base: str = TINY) -> None:
        """The run gets SIGTERM in the middle of an update, which it finishes."""
        original = Trainer.backward

        def backward(trainer, batch):
            if trainer.state.update + 1 == update and not trainer.stop.requested:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(trainer, batch)

        with self.monkeypatch.context() as patch:
            patch.setattr(Trainer, "backward", backward)
            assert self(name, flags, base) == 130
        assert self.state(name)["update"] == update

    def checkpoint(self, name: str, file: str = "checkpoint_last.pt") -> dict:
        return read_checkpoint(self.root / name / file)

    def state(self, name: str) -> dict:
        return self.checkpoint(name)["train_state"]


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def assert_same(a, b, where="checkpoint"):
    """Checks that a and b are equal in structure and in every bit."""
    assert type(a) is type(b), f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        assert a.numpy().tobytes() == b.numpy().tobytes(), f"{where}: {(a - b).abs().max()} apart"
    elif isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{i}]")
    else:
        assert a == b, f"{where}: {a!r} and {b!r}"


def without_time(checkpoint: dict) -> dict:
    """A checkpoint without the parts that may differ between equal runs: seconds and paths."""
    state = {k: v for k, v in checkpoint["train_state"].items() if k != "seconds"}
    config = {k: v for k, v in checkpoint["config"].items() if k != "loop"}
    return {**checkpoint, "train_state": state, "config": config}
