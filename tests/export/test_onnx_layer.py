"""A layer as an ONNX model equals the layer: every cell, every form, any chunking, in ONNX Runtime."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from tolerances import assert_close
from tsm.benchmarks.saturation import saturates
from tsm.export.contract.samples import B, H, I, T, make_layer, make_sample
from tsm.export.onnx.layer import layer_model, quantized
from tsm.export.onnx.nodes import OPERATORS, SIMPLE
from tsm.plugin.cells.tape.ops import DEFINED, PRIMITIVES
from tsm.plugin.cells.tape.rows import SIMPLE as SIMPLE_OPS
from tsm.plugin.layers import Recurrent


class Session:
    """session(x, state, dt) -> (y, state), like the layer."""

    def __init__(self, model):
        self.model = model
        self.session = onnxruntime.InferenceSession(
            self.model.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def __call__(self, x, state, dt=None):
        feeds = {"x": x.numpy(), **{f"state_{n}_0_in": v.numpy() for n, v in state.items()}}
        feeds |= {} if dt is None else {"dt": dt.numpy()}
        names = [value.name for value in self.session.get_outputs()]
        found = dict(zip(names, self.session.run(names, feeds), strict=True))
        states = {n: torch.from_numpy(found[f"state_{n}_0_out"]) for n in state}
        return torch.from_numpy(found["y"]), states


def agree(found, expected, kind="onnx"):
    assert_close(found[0], expected[0], kind, "float32", "y")
    assert set(found[1]) == set(expected[1])
    for name, value in expected[1].items():
        assert_close(found[1][name], value, kind, "float32", f"state {name}")


def check_layer(cell, recurrence, with_dt):
    layer = make_layer(cell, torch.float32)
    sample = make_sample(layer, with_dt=with_dt, with_lengths=False)
    steps = T if recurrence == "unrolled" else None
    run = Session(layer_model(layer, recurrence=recurrence, chunk_size=steps, with_dt=with_dt))
    onnx.checker.check_model(run.model, full_check=True)
    onnx.shape_inference.infer_shapes(run.model, check_type=True, strict_mode=True)
    agree(run(sample.x, sample.state, sample.dt), sample.run(layer))


@torch.no_grad()
@pytest.mark.parametrize("recurrence", ["scan", "loop", "unrolled"])
def test_layer(cell, recurrence):
    check_layer(cell, recurrence, with_dt=False)


@torch.no_grad()
@pytest.mark.parametrize("recurrence", ["scan", "loop", "unrolled"])
def test_layer_with_time_steps(dt_cell, recurrence):
    check_layer(dt_cell, recurrence, with_dt=True)


@torch.no_grad()
def test_chunks_and_batches(elementwise_cell):
    """One Scan works for any T and N, and so does the one-step graph, called step by step."""
    layer = make_layer(elementwise_cell, torch.float32)
    sample = make_sample(layer, with_dt=False, with_lengths=False)
    scan = Session(layer_model(layer))
    one = Session(layer_model(layer, recurrence="unrolled", chunk_size=1))
    for rows in (1, B):
        x, state = sample.x[:rows], {n: v[:rows] for n, v in sample.state.items()}
        expected = layer(x, state)
        for run, cuts in ((scan, [0, 1, 8, T]), (one, list(range(T + 1)))):
            parts, last = [], state
            for start, end in itertools.pairwise(cuts):
                y, last = run(x[:, start:end], last)
                parts.append(y)
            agree((torch.cat(parts, dim=1), last), expected)


@torch.no_grad()
def test_lstm_operator():
    layer = Recurrent("lstm", I, H, backend="reference")
    sample = make_sample(layer, with_lengths=False)
    run = Session(layer_model(layer, recurrence="lstm_op"))
    onnx.checker.check_model(run.model, full_check=True)
    agree(run(sample.x, sample.state), sample.run(layer))
    agree(
        run(sample.x[:1, :2], {n: v[:1] for n, v in sample.state.items()}),
        layer(sample.x[:1, :2], {n: v[:1] for n, v in sample.state.items()}),
    )


@torch.no_grad()
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("recurrence", ["scan", "unrolled"])
def test_int8(elementwise_cell, recurrence, per_channel):
    """With 8-bit weights, also inside a Scan, results are close to the layer's, but not equal."""
    layer = make_layer(elementwise_cell, torch.float32)
    sample = make_sample(layer, with_dt=False, with_lengths=False)
    steps = T if recurrence == "unrolled" else None
    model = layer_model(layer, recurrence=recurrence, chunk_size=steps)
    run = Session(quantized(model, per_channel, reduce_range=saturates()))
    matrix = "layers.0.weight_h" if layer.weights else "layers.0.weight_x"
    assert matrix in {t.name for t in model.graph.initializer}
    assert matrix not in {t.name for t in run.model.graph.initializer}
    found, expected = run(sample.x, sample.state), sample.run(layer)
    agree(found, expected, "onnx_int8")
    assert not torch.equal(found[0], expected[0])


@torch.no_grad()
def test_unrolled_shares_its_weights():
    """However many steps are unrolled, each matrix is stored once."""
    layer = Recurrent("plstm", 32, 64)
    sizes = [layer_model(layer, recurrence="unrolled", chunk_size=n).ByteSize() for n in (1, 20)]
    weights = 4 * (layer.weight_x.numel() + layer.weight_h.numel())
    assert sizes[1] - sizes[0] < 0.5 * weights < sizes[0]


@torch.no_grad()
def test_frozen_bias_and_fixed_vectors():
    """The values that the layer uses are exported, not its raw parameters."""
    layer = Recurrent("lstm", I, H, init="multi_timescale", init_options={"alpha": 1.5}).eval()
    layer.bias.add_(1.0)
    sample = make_sample(layer, with_lengths=False)
    agree(Session(layer_model(layer))(sample.x, sample.state), sample.run(layer))
    fixed = Recurrent("plstm", I, H, p=0.3, eps=1e-2, backend="reference")
    sample = make_sample(fixed, with_dt=False, with_lengths=False)
    agree(Session(layer_model(fixed))(sample.x, sample.state), sample.run(fixed))


def test_names_and_versions():
    model = layer_model(Recurrent("plstm", I, H))
    assert [v.name for v in model.graph.input] == [
        "x", "state_age_0_in", "state_c_0_in", "state_h_0_in",
    ]  # fmt: skip
    assert [v.name for v in model.graph.output] == [
        "y", "state_age_0_out", "state_c_0_out", "state_h_0_out",
    ]  # fmt: skip
    assert model.ir_version == 10
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 21)]
    assert {p.key: p.value for p in model.metadata_props}["cell"] == "plstm"


def test_every_primitive_of_a_program_has_a_rule():
    programs = {name for name, primitive in PRIMITIVES.items() if primitive.derivative}
    assert set(OPERATORS) == programs - set(DEFINED)
    assert set(SIMPLE) == set(SIMPLE_OPS)


@pytest.mark.parametrize(
    ("name", "options", "part"),
    [
        ("plstm", {"recurrence": "while"}, "accepted: scan"),
        ("plstm", {"recurrence": "lstm_op"}, "cell 'lstm'"),
        ("plstm", {"recurrence": "unrolled"}, "number of steps"),
        ("plstm", {"recurrence": "unrolled", "chunk_size": 0}, "at least 1"),
        ("plstm", {"chunk_size": 4}, "None with the others"),
        ("lstm", {"with_dt": True}, "takes no dt"),
        ("plstm", {"dtype": "float8"}, "accepted for ONNX: float32"),
        ("lstm", {"recurrence": "lstm_op", "dtype": "int8"}, "'lstm_op'; accepted: float32"),
    ],
)
def test_bad_input(name, options, part):
    with pytest.raises(ValueError, match=part):
        layer_model(Recurrent(name, I, H), **options)


def test_numbers_keep_their_value():
    """Constants such as eps = 1e-3 are written with all digits of a float32."""
    layer = Recurrent("plstm", I, H, eps=0.00123456789)
    values = {t.name: onnx.numpy_helper.to_array(t) for t in layer_model(layer).graph.initializer}
    assert np.float32(0.00123456789) in [v for v in values.values() if v.shape == ()]
