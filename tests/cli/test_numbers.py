"""A model of numbers is one wherever it is read: checkpoint, .tsm file, other exports, every command."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tsm
from tsm.plugin.cli.predict import main as predict
from tsm.plugin.cli.stream import main as stream
from tsm.plugin.cli.train import main as train
from tsm.plugin.criterions import CRITERIONS, Criterion, register_criterion, with_output_names
from tsm.plugin.data.labels import dump_labels
from tsm.plugin.tasks import TASKS
from tsm.plugin.trained import open_trained
from tsm.runtime import Model

package = pytest.importorskip("tsm.export.tsm.package").package
SIZES = {"length": 40, "train": 4, "valid": 4, "test": 4, "updates": 1}


def tasks_of_numbers() -> list[str]:
    """Those with generated data."""
    named = {name: TASKS.get(name) for name in TASKS}
    unread = {n: t for n, t in named.items() if "not used" in help_of_data(t.Config)}
    return [n for n, t in unread.items() if CRITERIONS.get(t.criterion).classes is False]


def help_of_data(config: type) -> str:
    return next(f.metadata["help"] for f in dataclasses.fields(config) if f.name == "data")


@pytest.fixture(scope="module", params=tasks_of_numbers())
def trained(request, tmp_path_factory) -> tuple[Path, Path]:
    """A checkpoint and its .tsm file."""
    folder, task = tmp_path_factory.mktemp("numbers"), TASKS.get(request.param)
    names = [field.name for field in dataclasses.fields(task.Config)]
    few = {n: SIZES[end] for n in names if (end := n.rpartition("_")[2]) in SIZES}
    flags = [word for n, size in few.items() for word in (f"--{n.replace('_', '-')}", str(size))]
    flags += ["--task", request.param, "--arch", f"lstm_{task.family}", "--max-update", "1"]
    flags += ["--decoder-hidden-size", "4", "--cpu", "--log-format", "none"]
    assert train([*flags, "--save-dir", str(folder)]) == 0
    file = folder / "model.tsm"
    package(open_trained(folder / "checkpoint_last.pt"), file)
    return folder / "checkpoint_last.pt", file


def typed(monkeypatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_the_tasks_of_numbers_are_tested():
    assert {"adding", "dyck2"} <= {*tasks_of_numbers()}


def test_every_reader_gives_numbers(trained, tmp_path, capsys, monkeypatch):
    checkpoint, file = trained
    model = Model.load(file)
    names = [f"y{i}" for i in range(model.output_size)]
    assert [*model.targets] == open_trained(checkpoint).targets == names
    assert model.labels is None
    read = np.ones(2, np.int64) if model.takes_tokens else np.ones((2, model.input_size))
    for path in (checkpoint, file):
        assert tsm.load(path).targets == names
        outputs = tsm.load(path).logits([read])[0]
        if not model.takes_tokens:
            np.savez(tmp_path / "x.npz", x=read[None].astype(np.float32))
            assert predict([str(path), str(tmp_path / "x.npz"), "--format", "json"]) == 0
            rows = [json.loads(line)["values"] for line in capsys.readouterr().out.splitlines()]
            assert np.array([[*row.values()] for row in rows]) == pytest.approx(outputs, abs=1e-5)
    typed(monkeypatch, "\n".join(" ".join(map(str, np.atleast_1d(row))) for row in read))
    tokens = ["--tokens"] if model.takes_tokens else []
    assert stream([str(file), *tokens, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all("probability" not in row for row in rows)
    assert np.array([[*row["values"].values()] for row in rows]) == pytest.approx(outputs, abs=1e-5)


def test_exports_of_other_formats_say_so(trained):
    from tsm.export.common.facts import facts
    from tsm.export.common.formats import Options, Source

    found = open_trained(trained[0])
    source = Source(found.model, found.config, found.assets)
    assert json.loads(facts(source, Options())["targets"]) == found.targets
    assert not source.classes


def test_a_checkpoint_of_an_earlier_version_says_so(trained, tmp_path):
    """It does not name the outputs, but its criterion."""
    old = torch.load(trained[0], weights_only=True)
    assert old["assets"].pop("targets.txt") is not None
    torch.save(old, tmp_path / "old.pt")
    assert open_trained(tmp_path / "old.pt").targets == open_trained(trained[0]).targets


def test_what_outputs_are_called():
    """By the task or, if it names none, y0, y1. If a user's criterion says nothing, labels name classes."""
    named = {kind: f"own_{kind}" for kind in ("silent", "classes", "numbers")}
    try:
        for kind, known in (("silent", None), ("classes", True), ("numbers", False)):
            register_criterion(named[kind])(type(kind, (Criterion,), {"classes": known}))
        model = tsm.plugin.build_model("lstm_tagger", input_size=1, num_classes=2)
        lm = tsm.plugin.build_model("lstm_lm", vocab_size=2, decoder_embed_dim=2)
        none: dict[str, bytes] = {}
        labels, targets = ({f"{n}.txt": dump_labels(["a", "b"])} for n in ("labels", "targets"))
        numbered = {"targets.txt": dump_labels(["y0", "y1"])}
        for kind, files, wanted in (
            ("silent", none, numbered),
            ("silent", labels, labels),
            ("silent", targets, targets),
            ("classes", none, none),
            ("classes", labels, labels),
            ("numbers", none, numbered),
            ("numbers", labels, targets),
            ("numbers", targets, targets),
        ):
            criterion = CRITERIONS.get(named[kind])
            assert with_output_names(files, criterion, model) == wanted, (kind, files)
            assert with_output_names(files, criterion, lm) == files
    finally:
        for name in named.values():
            CRITERIONS._entries.pop(name, None)
            CRITERIONS._makers.pop(name, None)
