"""No command overwrites its input, whatever the file is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from small_models import small
from tsm.export.cli import main as export
from tsm.plugin.cli.analyze import main as analyze
from tsm.plugin.cli.eval import main as evaluate
from tsm.plugin.cli.stream import main as stream
from tsm.plugin.cli.train import main as train
from tsm.plugin.common.atomic import write_bytes
from tsm.plugin.common.inputs import keep_inputs

NAMES = ("itself", "another path", "symbolic link", "hard link")


def name_of(kind: str, file: Path) -> Path:
    """Another name for the same file."""
    if kind == "another path":
        (file.parent / "sub").mkdir(exist_ok=True)
        return file.parent / "sub" / ".." / file.name
    other = file.with_name(f"other{file.suffix}")
    if kind == "symbolic link":
        other.symlink_to(file)
    elif kind == "hard link":
        os.link(file, other)
    return file if kind == "itself" else other


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    flags = ["--cpu", "--log-format", "none", "--no-epoch-checkpoints", "--max-update", "1"]
    size = ["--decoder-hidden-size", "4", "--decoder-embed-dim", "4", "--task", "copy"]
    size += ["--copy-length", "3", "--save-dir", str(folder)]
    assert train(["--arch", "lstm_tagger", *flags, *size]) == 0
    return (folder / "checkpoint_last.pt").read_bytes()


def refused(capsys, command, *args) -> str:
    capsys.readouterr()
    assert command([str(arg) for arg in args]) == 2
    err = capsys.readouterr().err
    assert "which is read; accepted: another name" in err and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("kind", NAMES)
def test_checkpoint_is_kept(kind, checkpoint, tmp_path, capsys):
    path = tmp_path / "model.pt"
    path.write_bytes(checkpoint)
    other = name_of(kind, path)
    for command, *args in (
        (export, "tsm", "--path", path, "--output", other),
        (evaluate, "--path", path, "--cpu", "--json", other),
        (analyze, "live", path, "--cpu", "--output", other),
        (train, "--task", "copy", "--arch", "lstm_tagger", "--restore-file", path, "--log-file", other),
    ):  # fmt: skip
        assert str(other) in refused(capsys, command, *args)
    assert path.read_bytes() == other.read_bytes() == checkpoint


@pytest.mark.parametrize("kind", NAMES)
def test_model_file_is_kept(kind, tmp_path, capsys):
    from tsm.export.tsm.package import package

    path = tmp_path / "model.tsm"
    package(small("lstm_lm"), path)
    before, other = path.read_bytes(), name_of(kind, path)
    refused(capsys, stream, path, "--save-state", other)
    assert path.read_bytes() == other.read_bytes() == before


def test_what_lies_beside_the_file_counts(checkpoint, tmp_path, capsys):
    path = tmp_path / "model.onnx.report.json"
    path.write_bytes(checkpoint)
    refused(capsys, export, "onnx", "--path", path, "--output", tmp_path / "model.onnx")
    assert path.read_bytes() == checkpoint


def test_a_folder_and_its_files(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.bin").write_bytes(b"x")
    (tmp_path / "link").symlink_to(data)
    for place in (data, tmp_path / "link", data / "train.bin", tmp_path / "link" / "train.bin"):
        with pytest.raises(ValueError, match=r"--output .* would replace .*data"):
            keep_inputs("--output", [place], [data])
    keep_inputs("--output", [data / "new", tmp_path / "new"], [data, None, "", tmp_path / "none"])
    keep_inputs("--output", ["/dev/null"], ["/dev/null"])


def test_a_pipe_is_not_replaced(checkpoint, tmp_path, capsys):
    """As root, a rename would even replace /dev/null."""
    pipe, model = tmp_path / "pipe", tmp_path / "model.pt"
    model.write_bytes(checkpoint)
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    stdout = tmp_path / "stdout"
    with open(model, "rb") as opened:  # as a shell opens a file for "> file"
        stdout.symlink_to(f"/proc/self/fd/{opened.fileno()}")
        with pytest.raises(OSError, match="not a regular file"):
            write_bytes(stdout, b"x")
    for place in (pipe, tmp_path / "link"):
        with pytest.raises(OSError, match="not a regular file; accepted: a file"):
            write_bytes(place, b"x")
    assert export(["tsm", "--path", str(model), "--output", str(pipe)]) == 2
    assert f"{pipe}: not a regular file; accepted: a file" in capsys.readouterr().err
    assert pipe.is_fifo() and len(list(tmp_path.iterdir())) == 4


def test_an_error_names_the_path_that_was_given(tmp_path):
    place = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write_bytes(place, b"x")
    assert caught.value.filename == str(place)
