"""Every command, given a file of the wrong kind, says what kind of file it is."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import torch

from tsm.plugin.cli import eval as eval_command
from tsm.plugin.cli import stream, train
from tsm.plugin.common import file_kinds
from tsm.plugin.common.file_kinds import CHECKPOINT, MODEL, ONNX, PT2, TORCHSCRIPT, file_kind

GOLDEN = Path(__file__).parents[1] / "golden" / "v2.tsm"


def onnx_file() -> bytes:
    helper = pytest.importorskip("onnx").helper
    model = helper.make_model(helper.make_graph([], "g", [], []), producer_name="tsm")
    return model.SerializeToString()


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """Kind of file -> a minimal example of it; the .tsm model is the golden file."""
    folder = tmp_path_factory.mktemp("kinds")
    layer = torch.nn.Linear(2, 2)
    script, pt2, checkpoint, arrays = (io.BytesIO() for _ in range(4))
    torch.jit.save(torch.jit.trace(layer, torch.ones(1, 2)), script)
    torch.export.save(torch.export.export(layer, (torch.ones(1, 2),)), pt2)
    torch.save(layer.state_dict(), checkpoint)
    np.savez(arrays, a=np.ones(2))
    contents = {
        TORCHSCRIPT: script.getvalue(),
        PT2: pt2.getvalue(),
        CHECKPOINT: checkpoint.getvalue(),
        MODEL: GOLDEN.read_bytes(),
        ONNX: onnx_file(),
        "a NumPy archive (.npz)": arrays.getvalue(),
        "a gzip file": gzip.compress(b"words"),
        "": b"the cat sat on the mat\n",
    }
    found = {}
    for number, (kind, data) in enumerate(contents.items()):
        found[kind] = folder / f"file{number}"
        found[kind].write_bytes(data)
    (folder / "run").mkdir()
    (folder / "run" / "checkpoint_last.pt").touch()
    return {**found, file_kinds.FOLDERS["checkpoint_last.pt"]: folder / "run"}


def test_kinds(files, tmp_path):
    assert {kind: file_kind(path) for kind, path in files.items()} == {k: k for k in files}
    assert file_kind(tmp_path) == "a folder" and file_kind(tmp_path / "none") == ""


def test_a_cut_file_of_any_kind_is_no_crash(files, tmp_path):
    for kind, path in files.items():
        data = path.read_bytes() if path.is_file() else b""
        for end in (0, 1, 2, 3, 9, len(data) // 2):
            (tmp_path / "cut").write_bytes(data[:end])
            assert file_kind(tmp_path / "cut") in ("", kind, "a safetensors file")


def said(capsys, main, *argv: object) -> str:
    assert main([str(word) for word in argv]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_the_commands_say_it(files, capsys, tmp_path):
    for kind in set(files) - {CHECKPOINT, ""}:
        error = said(capsys, eval_command.main, "--path", files[kind], "--cpu")
        assert f"is {kind}" in error and f"accepted: {CHECKPOINT}" in error
    error = said(capsys, stream.main, files[CHECKPOINT])
    assert f"is {CHECKPOINT} (tsm-eval, " in error and f"accepted: {MODEL}" in error
    for kind in file_kinds.MODELS:
        error = said(capsys, train.main, files[kind], "--arch", "plstm_lm", "--cpu")
        assert f"is {kind}, not data; to continue from a checkpoint: --restore-file" in error
