"""The contents of an exported ONNX file: names, shapes, metadata, sizes; and its behaviour on odd input."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from small_models import C, H, V, small
from tsm import __version__
from tsm.export import export
from tsm.export.common import seal
from tsm.export.common.formats import Options, Source
from tsm.export.common.runner import feed
from tsm.export.entry import as_source
from tsm.export.onnx import file as onnx_file
from tsm.export.onnx.model import build, checked, write
from tsm.export.onnx.runners import OrtRunner, ReferenceRunner
from tsm.export.verify.verify import verify
from tsm.plugin.trained import open_trained


def made(model, form="scan", chunk_size=None, dtype="float32", inputs=None):
    source = model if isinstance(model, Source) else Source(model)
    return build(source, checked(source.model, Options(form, chunk_size, dtype, inputs)))


def session(proto):
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def shape(value):
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def clock(x):
    """Whole rows, steps of 1."""
    return {"lengths": np.full(len(x), x.shape[1]), "dt": np.ones(x.shape[:2], np.float32)}


def props(proto):
    return {p.key: p.value for p in proto.metadata_props}


@pytest.mark.parametrize("form, chunk_size", [("scan", None), ("loop", None), ("unrolled", 4)])
def test_names_and_versions(form, chunk_size):
    proto = made(small("plstm_lm", decoder_layers=2), form, chunk_size)
    steps = chunk_size or "T"
    states = [f"state_{name}_{layer}" for name in ("age", "c", "h") for layer in (0, 1)]
    assert {v.name: shape(v) for v in proto.graph.input} == {
        "x": ["N", steps],
        "lengths": ["N"],
        "dt": ["N", steps],
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


FORMS = [("scan", None), ("loop", None), ("unrolled", 6), ("lstm_op", None)]


@pytest.mark.parametrize("form, chunk_size", FORMS)
@pytest.mark.parametrize("inputs", [None, ("lengths", "dt"), ("dt",), ("lengths",), ()])
@pytest.mark.parametrize("arch", ["plstm_lm", "lstm_classifier"])
def test_inputs_are_those_asked_for_and_required(arch, inputs, form, chunk_size, tmp_path):
    """Each input must be given; inputs have no defaults, because some consumers cannot override a default."""
    model = small(arch)
    has = ["lengths", "dt"] if arch == "plstm_lm" else ["lengths"]
    if (arch == "plstm_lm" and form == "lstm_op") or not set(inputs or ()) <= set(has):
        with pytest.raises(ValueError, match="accepted"):
            made(model, form, chunk_size, inputs=inputs)
        return
    wanted = [name for name in has if inputs is None or name in inputs]
    proto = made(model, form, chunk_size, inputs=inputs)
    names = [v.name for v in proto.graph.input]
    assert [name for name in names if name in ("lengths", "dt")] == wanted
    assert not set(names) & {t.name for t in proto.graph.initializer}
    assert props(proto)["format"] == "2" and json.loads(props(proto)["inputs"]) == wanted
    path = tmp_path / "model.onnx"
    write(Source(model), path, Options(form, chunk_size, inputs=inputs), lambda what: None)
    report = verify(model, [OrtRunner(path, threads=1)], steps=30)
    assert report.passed, str(report)
    asked = {check.what for check in report.checks}
    assert ("ragged lengths" in asked) == ("lengths" in wanted)
    assert ("time steps dt" in asked) == ("dt" in wanted)
    run, x = session(proto), np.zeros((2, 6), np.int64)
    states = {name: np.zeros((2, H), np.float32) for name in names if name.startswith("state_")}
    for name in wanted:
        others = {n: v for n, v in clock(x).items() if n in wanted and n != name}
        with pytest.raises(ValueError, match=f"Required inputs .*{name}"):
            run.run(None, {"x": x, **states, **others})


def test_a_graph_without_an_input_cannot_be_given_it(tmp_path):
    path = tmp_path / "model.onnx"
    write(Source(small("plstm_lm")), path, Options("unrolled", 4, inputs=()), lambda what: None)
    runner, x = OrtRunner(path), np.zeros((2, 4), np.int64)
    runner.run(x)
    with pytest.raises(ValueError, match="lengths was given to a graph without it"):
        runner.run(x, lengths=np.array([4, 3]))
    with pytest.raises(ValueError, match="dt was given to a graph without it"):
        runner.run(x, dt=np.ones((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"6 steps .*accepted: a multiple of 4"):
        feed(runner, np.zeros((2, 6), np.int64))


def test_a_file_of_format_1_is_refused(tmp_path):
    proto = made(small("lstm_lm"))
    for prop in proto.metadata_props:
        prop.value = "1" if prop.key == "format" else prop.value
    onnx_file.save(proto, tmp_path / "model.onnx")
    for runner in (OrtRunner, ReferenceRunner):
        with pytest.raises(ValueError, match="format = '1'; accepted: '2'"):
            runner(tmp_path / "model.onnx")


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


@pytest.mark.parametrize("form, chunk_size", FORMS[:3])
def test_without_an_input_every_step_is_1_and_counts(form, chunk_size):
    """The bits equal those of a graph that has the input, if dt = 1 or lengths of at least T are passed."""
    model = small("plstm_lm")
    rng = np.random.default_rng(0)
    x = rng.integers(0, V, (3, 6))
    feeds = {f"state_{n}_0_in": rng.random((3, H)).astype(np.float32) for n in ("age", "c", "h")}
    expected = session(made(model, form, chunk_size, inputs=())).run(None, {"x": x, **feeds})
    run = session(made(model, form, chunk_size))
    for lengths in ([6, 6, 6], [6, 7, 600]):
        given = {"x": x, **feeds, **clock(x), "lengths": np.array(lengths)}
        for found, want in zip(run.run(None, given), expected, strict=True):
            assert np.array_equal(found, want), lengths


@pytest.mark.parametrize("reads", [{"decoder_embed_dim": 5}, {"decoder_embed_dim": 0}])
@pytest.mark.parametrize("token", [-1, V, V + 7, -V])
def test_unknown_token_is_an_error(reads, token):
    """This includes negative tokens, which ONNX would count from the end."""
    run = session(made(small("lstm_lm", **reads)))
    states = {f"state_{n}_0_in": np.zeros((1, H), np.float32) for n in ("c", "h")}
    with pytest.raises(Exception, match=r"out of (data )?bounds"):
        run.run(None, {"x": np.array([[1, token]]), "lengths": np.array([2]), **states})


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
    """Each row of each step is rounded separately."""
    run = session(made(small("plstm_lm"), dtype="int8", inputs=()))
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
    """A model over 2 GB, simulated with a lower limit."""
    monkeypatch.setattr(onnx_file, "LARGEST", 10_000)
    model = small("plstm_lm", decoder_hidden_size=128)
    path = tmp_path / "model.onnx"
    export(model, path, "onnx", dtype=dtype, steps=20)
    for beside in ("model.onnx.report.json", "model.onnx.drift.png"):
        (tmp_path / beside).unlink()
    first, data = sorted(tmp_path.iterdir())
    assert first == path and re.fullmatch(r"model\.onnx\.[0-9a-f]{16}\.data", data.name)
    assert path.stat().st_size < data.stat().st_size
    assert f".{hashlib.sha256(data.read_bytes()).hexdigest()[:16]}." in data.name
    report = verify(model, [OrtRunner(path, threads=1)], dtype, steps=20)
    assert report.passed, str(report)
    with pytest.raises(ValueError, match="bytes of weights; accepted in one ONNX file"):
        made(model)


def test_a_large_model_over_another(monkeypatch, tmp_path):
    """The old weights are removed; a flipped bit in the new ones, or a missing file, is detected."""
    monkeypatch.setattr(onnx_file, "LARGEST", 10_000)
    path = tmp_path / "model.onnx"
    for width in (120, 128):
        export(small("plstm_lm", decoder_hidden_size=width), path, "onnx", steps=20)
    (data,) = tmp_path.glob("model.onnx.*.data")
    assert "SHA-256" in seal.check(path, "onnx")
    damaged = bytearray(data.read_bytes())
    damaged[5000] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"model\.onnx is damaged: its SHA-256"):
        seal.check(path, "onnx")
    data.unlink()
    with pytest.raises(ValueError, match=r"its weights, .*, are not beside it"):
        seal.check(path, "onnx")


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
        (
            "lstm_lm",
            {"inputs": ("dt",)},
            "'dt', which cell 'lstm' does not take; .*some of lengths",
        ),
        ("plstm_lm", {"inputs": ("x",)}, "inputs has 'x'; accepted: some of lengths, dt, or none"),
        ("plstm_lm", {"dtype": "bfloat16"}, "accepted for ONNX: float32, float16, int8"),
    ],
)
def test_what_cannot_be_says_what_can(arch, options, part, tmp_path):
    with pytest.raises(ValueError, match=part):
        write(Source(small(arch)), tmp_path / "m.onnx", Options(**options), lambda what: None)
    assert not list(tmp_path.iterdir())


def test_a_classifier_that_reads_through_the_padding(tmp_path):
    """The model was trained to read padding as tokens, so it needs no lengths and gives PyTorch's answer."""
    model = small("lstm_classifier", read_at="end")
    proto = made(model, inputs=())
    assert props(proto)["read_at"] == "end"
    x = np.random.default_rng(3).integers(0, V, (3, 8))
    states = {f"state_{n}_0_in": np.zeros((3, H), np.float32) for n in ("c", "h")}
    found = session(proto).run(["logits"], {"x": x, **states})[0]
    with torch.no_grad():
        expected, _ = model(torch.from_numpy(x), torch.tensor([8, 3, 1]))
    assert np.allclose(found, expected.numpy(), atol=1e-6)
