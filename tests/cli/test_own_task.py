"""A user-defined task whose data is a file: trained, and used by the other commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tsm.plugin.cli.analyze import main as analyze
from tsm.plugin.cli.eval import main as evaluate
from tsm.plugin.cli.train import main as train
from tsm.plugin.tasks import TASKS

TASK = '''
from dataclasses import dataclass
import torch
from tsm.plugin.config import setting
from tsm.plugin.tasks import Batch, Task, register_task

@dataclass(frozen=True)
class LinesConfig:
    """lines of a file"""
    data: str = setting("", "the file")
    batch_size: int = setting(4, "lines per update")
    seed: int = setting(1, "not used")

@register_task("own_lines")
class LinesTask(Task):
    """Is the sum of a line above 0?"""
    Config = LinesConfig
    family = "classifier"

    def model_arguments(self):
        return {"input_size": 1, "num_classes": 2}

    def batches_per_epoch(self, epoch):
        return 2

    def train_batches(self, epoch, start=0):
        return (self.batch() for _ in range(start, 2))

    def eval_batches(self, split):
        return iter([self.batch()])

    def batch(self):
        rows = [[float(v) for v in line.split()] for line in open(self.config.data)]
        x = torch.tensor(rows)
        return Batch(x[:, :, None], (x.sum(1) > 0).long())
'''


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> Iterator[tuple[list[str], Path]]:
    tmp_path = tmp_path_factory.mktemp("own")
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug" / "lines.py").write_text(TASK)
    (tmp_path / "mine.txt").write_text("1 2 -1 1\n-1 0 -2 1\n1 1 1 1\n0 -1 0 0\n")
    save = tmp_path / "run"
    flags = ["--user-dir", str(tmp_path / "plug")]
    small = ["--decoder-hidden-size", "6", "--max-update", "2", "--log-format", "none", "--cpu"]
    words = ["--task", "own_lines", "--arch", "plstm_classifier", "--save-dir", str(save)]
    assert train([str(tmp_path / "mine.txt"), *words, *small, *flags]) == 0
    yield flags, save / "checkpoint_best.pt"
    del TASKS._entries["own_lines"], TASKS._makers["own_lines"]


@pytest.fixture
def gone(own) -> Iterator[None]:
    """Moves the data file away during the test."""
    file = own[1].parents[1] / "mine.txt"
    file.rename(file.with_suffix(".old"))
    yield
    file.with_suffix(".old").rename(file)


def test_the_other_commands_find_a_file_again(own, tmp_path, capsys, monkeypatch):
    flags, path = own
    monkeypatch.chdir(tmp_path)
    assert evaluate(["--path", str(path), "--cpu", *flags]) == 0
    assert "Evaluated 4 sequences" in capsys.readouterr().out
    assert analyze(["timescales", str(path), "--cpu", *flags]) == 0
    export = pytest.importorskip("tsm.export.cli").main
    where = ["tsm", "--path", str(path), "--output", str(tmp_path / "m.tsm"), "--data"]
    assert export([*where, "--verify-steps", "10", *flags]) == 0
    assert "8 checks passed" in capsys.readouterr().out


def test_a_file_that_is_gone_is_named_by_the_task(own, gone, capsys):
    flags, path = own
    assert evaluate(["--path", str(path), "--cpu", *flags]) == 2
    assert "mine.txt: No such file" in capsys.readouterr().err


def test_a_file_for_a_folder_is_called_a_file(tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("text,label\na,b\n")
    flags = ["--task", "classification", "--arch", "plstm_classifier", "--no-save", "--cpu"]
    assert train([str(tmp_path / "mine.csv"), *flags]) == 2
    said = capsys.readouterr().err
    assert "mine.csv is a file; accepted: a preprocessed folder" in said
    assert f"--trainpref {tmp_path / 'mine.csv'}" in said and "--destdir DIR" in said
