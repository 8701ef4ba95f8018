"""`tsm-reproduce` in this process, with tiny sizes, in a separate folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tsm.plugin.cli.reproduce import main
from tsm.plugin.reproduce.data import DataRoom
from tsm.plugin.reproduce.recipe import Variant
from tsm.plugin.reproduce.runs.runner import Conditions, Run
from tsm.plugin.reproduce.store import Store

# A copy task that takes a few milliseconds, long enough to be stopped in the middle.
TINY = Variant(
    "tiny",
    "plstm-5",
    "plstm",
    "plstm_tagger",
    "copy",
    settings={
        "decoder_hidden_size": 6,
        "copy_length": 4,
        "copy_train": 40,
        "copy_valid": 8,
        "batch_size": 8,
        "best_checkpoint_metric": "accuracy",
        "maximize_best_checkpoint_metric": True,
        "log_interval": 1,
    },
    optimizer="rmsprop",
    epochs=4,
    measures=("test", "reached", "pace"),
)


class Room:
    """A results folder, and the variant that the tests run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "results")

    def conditions(self, **more) -> Conditions:
        data = DataRoom(self.folder / "data", small=True)
        return Conditions(self.store.root, data, cpu=True, **more)

    def run(self, seed: int = 1, **changes) -> Run:
        return Run(dataclasses.replace(TINY, **changes), seed, {})


@pytest.fixture
def room(tmp_path) -> Room:
    return Room(tmp_path)


@pytest.fixture
def command(tmp_path, capsys):
    """command("copy", "--smoke") -> exit code, output."""

    def call(*words: str) -> tuple[int, str]:
        code = main([*words, "--results", str(tmp_path / "results")])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call
