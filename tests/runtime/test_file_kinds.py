"""A file of another kind given as a model: the message says what it is and how to make a .tsm file."""

from __future__ import annotations

import gzip
import io
import pickle

import numpy as np
import onnx
import pytest
import torch

from tsm.plugin.cli import stream
from tsm.runtime import Model, TsmError


def saved(**options) -> bytes:
    out = io.BytesIO()
    torch.save({"weights": torch.zeros(300)}, out, **options)
    return out.getvalue()


def onnx_model(**fields) -> bytes:
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [value], [value])
    return onnx.helper.make_model(graph, **fields).SerializeToString()


def array() -> bytes:
    out = io.BytesIO()
    np.save(out, np.zeros(9))
    return out.getvalue()


@pytest.mark.parametrize(
    "make, what",
    [
        (saved, "it is a zip archive, such as a PyTorch checkpoint, a TorchScript or a .pt2 file"),
        (lambda: saved(_use_new_zipfile_serialization=False), "it is a Python pickle"),
        (lambda: pickle.dumps([1, 2, 3, "some more bytes"]), "it is a Python pickle"),
        (onnx_model, "it is an ONNX model"),
        (lambda: onnx_model(producer_name="tsm"), "it is an ONNX model"),
        (array, "it is a numpy array"),
        (lambda: gzip.compress(bytes(99)), "it is a gzip archive"),
        (
            lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:",
            "it is a Git LFS pointer",
        ),
    ],
)
def test_what_it_is(tmp_path, make, what):
    path = tmp_path / "model.pt"
    path.write_bytes(make())
    with pytest.raises(TsmError) as refused:
        Model.load(path)
    said = str(refused.value)
    assert said.startswith(f"{path}: {what}")
    assert said.endswith("accepted: a .tsm file, which `tsm-export tsm` makes from a checkpoint")
    assert refused.value.kind == "bad file"


def test_tsm_stream_says_it_too(tmp_path, capsys):
    path = tmp_path / "checkpoint_best.pt"
    path.write_bytes(saved())
    assert stream.main([str(path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tsm-stream: error: {path} is a checkpoint (.pt) ")
    assert "accepted: a .tsm model file" in said and said.count("\n") == 1


def test_a_state_is_no_model(tmp_path, model):
    path = tmp_path / "state.bin"
    path.write_bytes(model.create_stream().save_state())
    with pytest.raises(TsmError, match="it is the saved state of a stream; accepted"):
        Model.load(path)


def test_a_model_cut_short_is_still_said_to_be_one(tmp_path, files):
    path = tmp_path / "short.tsm"
    path.write_bytes(files["lm"].read_bytes()[:100])
    with pytest.raises(TsmError, match=r"the header.s length is .*is it a complete .tsm file"):
        Model.load(path)
