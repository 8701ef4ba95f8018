"""What is in an exported ONNX file: names, shapes, defaults, facts, sizes; and what it does with odd input."""

from __future__ import annotations

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from small_models import C, H, V, small
from tsm import __version__
from tsm.export import export, onnx_file
from tsm.export.entry import as_source
from tsm.export.formats import Options, Source
from tsm.export.onnx_model import build, checked, write
from tsm.export.proof.onnx_runners import OrtRunner
from tsm.export.proof.verify import verify
from tsm.plugin.trained import open_trained


def made(model, form="scan", chunk_size=None, dtype="float32"):
    source = model if isinstance(model, Source) else Source(model)
    return build(source, checked(source.model, Options(form, chunk_size, dtype)))


def session(proto):
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def shape(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def props(proto):
    return {p.key: p.value for p in proto.metadata_props}


@pytest.mark.parametrize("form, chunk_size", [("scan", None), ("loop", None), ("unrolled", 4)])
def test_names_and_versions(form, chunk_size):
    proto = made(small("plstm_lm", decoder_layers=2), form, chunk_size)
    steps = chunk_size or "T"
    states = [f"state_{name}_{layer}" for name in ("age", "c", "h") for layer in (0, 1)]
    assert {v.name: shape(v) for v in proto.graph.input} == {
        "x": ["N", steps],
        "lengths": ["N_or_1"],
        "dt": ["N_or_1", "T_or_1"],
        **{f"{name}_in": ["N", H] for name in states},
    }
    assert [v.name for v in proto.graph.input][3:] == [f"{name}_in" for name in states]
    assert {v.name: shape(v) for v in proto.graph.output} == {
        "logits": ["N", steps, V],
        **{f"{name}_out": ["N", H] for name in states},
    }
    assert [v.name for v in proto.graph.output][1:] == [f"{name}_out" for name in states]
    assert proto.ir_version == 10
    assert [(o.domain, o.version) for o in proto.opset_import] == [("", 21)]
    control = {"scan": "Scan", "loop": "Loop", "unrolled": ""}[form]
    assert {n.op_type for n in proto.graph.node} & {"Scan", "Loop"} == ({control} - {""})


def test_states_of_ten_layers_are_sorted_by_number():
    proto = made(small("lstm_lm", decoder_layers=11))
    names = [v.name for v in proto.graph.input if v.name.startswith("state_h")]
    assert names == [f"state_h_{i}_in" for i in range(11)]


def test_dt_is_an_input_only_where_the_cell_takes_it():
    proto = made(small("lstm_classifier"))
    assert "dt" not in {v.name for v in proto.graph.input}
    assert shape(proto.graph.output[0]) == ["N", C]


def test_facts(word):
    proto = made(as_source(word.path))
    found = props(proto)
    trained = open_trained(word.path)
    assert found["tsm_version"] == __version__
    assert (found["family"], found["cell"], found["recurrence"]) == ("lm", "plstm", "scan")
    assert json.loads(found["vocabulary"]) == list(trained.vocab.symbols)
    assert json.loads(found["tokenizer"]) == {"kind": "word", "unit": "line", "end": "<eos>"}
    assert json.loads(found["input"]) == {"kind": "tokens", "vocab_size": len(trained.vocab)}
    layout = json.loads(found["states"])
    assert [s["input"] for s in layout] == [v.name for v in proto.graph.input if "state_" in v.name]
    assert [s["output"] for s in layout] == [v.name for v in proto.graph.output][1:]
    assert json.loads(found["layers"])[0]["constants"] == {"eps": 1e-3}
    assert json.loads(found["takes_dt"]) is True


@pytest.mark.parametrize("form, chunk_size", [("scan", None), ("loop", None), ("unrolled", 6)])
def test_defaults_are_ones_and_all_steps(form, chunk_size):
    """Inputs that are left out, given as one number, or given in full: the same."""
    model = small("plstm_lm")
    run = session(made(model, form, chunk_size))
    rng = np.random.default_rng(0)
    feeds = {"x": rng.integers(0, V, (3, 6))}
    feeds |= {f"state_{n}_0_in": rng.random((3, H)).astype(np.float32) for n in ("age", "c", "h")}
    expected = run.run(None, feeds)
    for more in (
        {"lengths": np.array([6])},
        {"lengths": np.array([6, 6, 6])},
        {"lengths": np.array([600])},
        {"dt": np.ones((1, 1), np.float32)},
        {"dt": np.ones((3, 6), np.float32), "lengths": np.array([6, 7, 8])},
        {"dt": np.ones((1, 6), np.float32)},
        {"dt": np.ones((3, 1), np.float32)},
    ):
        for found, want in zip(run.run(None, feeds | more), expected, strict=True):
            assert np.array_equal(found, want), more
    one = run.run(None, feeds | {"dt": np.full((1, 1), 2, np.float32)})
    full = run.run(None, feeds | {"dt": np.full((3, 6), 2, np.float32)})
    assert np.array_equal(one[0], full[0]) and not np.array_equal(one[0], expected[0])


@pytest.mark.parametrize("reads", [{"decoder_embed_dim": 5}, {"decoder_embed_dim": 0}])
@pytest.mark.parametrize("token", [-1, V, V + 7, -V])
def test_unknown_token_is_an_error(reads, token):
    """Also a negative one, which ONNX would count from the end."""
    run = session(made(small("lstm_lm", **reads)))
    states = {f"state_{n}_0_in": np.zeros((1, H), np.float32) for n in ("c", "h")}
    with pytest.raises(Exception, match=r"out of (data )?bounds"):
        run.run(None, {"x": np.array([[1, token]]), **states})


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_states_and_logits_are_float32(dtype):
    proto = made(small("plstm_lm"), dtype=dtype)
    floats = {v.type.tensor_type.elem_type for v in (*proto.graph.input[2:], *proto.graph.output)}
    assert floats == {onnx.TensorProto.FLOAT}
    kinds = {t.name: t.data_type for t in proto.graph.initializer}
    assert kinds["layers.0.weight_h"] == getattr(
        onnx.TensorProto, dtype.replace("float32", "float").upper()
    )


def test_int8_is_the_same_for_any_batch_and_chunking():
    """Each row of each step is rounded by itself."""
    run = session(made(small("plstm_lm"), dtype="int8"))
    rng = np.random.default_rng(2)
    x = rng.integers(0, V, (4, 9))
    zeros = {f"state_{n}_0_in": np.zeros((4, H), np.float32) for n in ("age", "c", "h")}
    whole = run.run(None, {"x": x, **zeros})
    alone = run.run(None, {"x": x[2:3], **{k: v[:1] for k, v in zeros.items()}})
    assert np.array_equal(whole[0][2:3], alone[0])
    first = run.run(None, {"x": x[:, :4], **zeros})
    rest = dict(zip(zeros, first[1:], strict=True))
    second = run.run(None, {"x": x[:, 4:], **rest})
    assert np.array_equal(np.concatenate([first[0], second[0]], axis=1), whole[0])


def test_unrolled_shares_its_weights():
    model = small("plstm_lm", decoder_hidden_size=64)
    sizes = [made(model, "unrolled", n).ByteSize() for n in (1, 20)]
    weights = 4 * sum(p.numel() for p in model.parameters())
    assert sizes[1] - sizes[0] < weights < sizes[0]


def test_tied_weights_are_there_once():
    model = small("awd_lstm_lm", decoder_embed_dim=64, decoder_hidden_size=64)
    proto = made(model)
    names = [t.name for t in proto.graph.initializer]
    assert "embedding" in names and "output.weight" not in names


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_weights_in_a_file_of_their_own(dtype, monkeypatch, tmp_path):
    """What a model over 2 GB does, with the limit lowered."""
    monkeypatch.setattr(onnx_file, "LARGEST", 10_000)
    model = small("plstm_lm", decoder_hidden_size=128)
    path = tmp_path / "model.onnx"
    export(model, path, "onnx", dtype=dtype, steps=20)
    for beside in ("model.onnx.report.json", "model.onnx.drift.png"):
        (tmp_path / beside).unlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert path.stat().st_size < (tmp_path / "model.onnx.data").stat().st_size
    report = verify(model, [OrtRunner(path, threads=1)], dtype, steps=20)
    assert report.passed, str(report)
    with pytest.raises(ValueError, match="bytes of weights; accepted in one ONNX file"):
        made(model)


@pytest.mark.parametrize(
    "arch, options, part",
    [
        ("plstm_lm", {"recurrence": "lstm_op"}, "accepted for this cell: scan, loop, unrolled"),
        ("fast_lstm_lm", {"recurrence": "lstm_op"}, "accepted for this cell: scan, loop, unrolled"),
        ("lstm_lm", {"recurrence": "lstm_op", "dtype": "int8"}, "scan, loop, unrolled"),
        ("plstm_lm", {"recurrence": "unrolled"}, "for any T: scan, loop"),
        ("plstm_lm", {"recurrence": "unrolled", "chunk_size": 0}, "at least 1"),
        ("plstm_lm", {"recurrence": "scan", "chunk_size": 4}, "with 'unrolled'"),
        ("plstm_lm", {"recurrence": "while"}, "accepted: scan, loop, unrolled, lstm_op"),
        ("plstm_lm", {"dtype": "bfloat16"}, "accepted for ONNX: float32, float16, int8"),
    ],
)
def test_what_cannot_be_says_what_can(arch, options, part, tmp_path):
    with pytest.raises(ValueError, match=part):
        write(Source(small(arch)), tmp_path / "m.onnx", Options(**options), lambda what: None)
    assert not list(tmp_path.iterdir())


def test_a_classifier_that_reads_through_the_padding(tmp_path):
    """What it was trained on is padding as tokens: no lengths are given, and it is PyTorch's answer."""
    model = small("lstm_classifier", read_at="end")
    proto = made(model)
    assert props(proto)["read_at"] == "end"
    x = np.random.default_rng(3).integers(0, V, (3, 8))
    states = {f"state_{n}_0_in": np.zeros((3, H), np.float32) for n in ("c", "h")}
    found = session(proto).run(["logits"], {"x": x, **states})[0]
    with torch.no_grad():
        expected, _ = model(torch.from_numpy(x), torch.tensor([8, 3, 1]))
    assert np.allclose(found, expected.numpy(), atol=1e-6)
