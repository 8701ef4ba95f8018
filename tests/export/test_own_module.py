"""A user's module that contains tsm layers, exported with torch.export and to ONNX."""

from __future__ import annotations

import importlib.util
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import helper
from torch import nn

import tsm.nn
from tolerances import assert_close
from tsm.export import VerifyError, module_to_onnx
from tsm.export.contract.samples import make_layer, make_sample
from tsm.export.onnx.model import IR, OPSET
from tsm.export.onnx.operator import DOMAIN, FOUND, VERSION, Translation, layer_function
from tsm.plugin.layers import Recurrent

B, T, I, H = 3, 5, 4, 6


class Tagger(nn.Module):
    """Two bidirectional layers over ragged rows, with an embedding, a norm and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, I)
        self.first = tsm.nn.PLSTM(I, H, bidirectional=True, batch_first=True)
        self.norm = nn.LayerNorm(2 * H)
        self.second = tsm.nn.LSTM(2 * H, H, bidirectional=True, batch_first=True, proj_size=2)
        self.head = nn.Linear(4, 3)

    def forward(self, tokens, lengths):
        y, _ = self.first(self.embed(tokens), lengths=lengths)
        y, (h, _) = self.second(self.norm(y), lengths=lengths)
        return {"logits": self.head(y), "h": h}


@pytest.fixture(scope="module")
def tagger(tmp_path_factory):
    """The module, its file and the report."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("own") / "tagger.onnx"
    inputs = (torch.randint(20, (B, T)), torch.tensor([5, 2, 4]))
    module = Tagger()
    return module, path, module_to_onnx(module, inputs, path)


def test_two_bidirectional_layers(tagger):
    """The file works for sizes other than those of the export: one row, one step, and a row of length 0."""
    module, path, report = tagger
    assert report.passed and [check.what.split(" (")[0] for check in report.checks] == [
        "the example",
        "larger sizes",
    ]
    assert module.training  # a copy was exported
    session = onnxruntime.InferenceSession(str(path))
    assert [one.name for one in session.get_inputs()] == ["tokens", "lengths"]
    for rows, steps, lengths in [(1, 1, [1]), (1, 9, [4]), (7, 3, [3, 0, 1, 2, 3, 1, 3])]:
        tokens = torch.randint(20, (rows, steps))
        with torch.no_grad():
            expected = module(tokens, torch.tensor(lengths))
        found = session.run(None, {"tokens": tokens.numpy(), "lengths": np.array(lengths)})
        for got, (name, want) in zip(found, expected.items(), strict=True):
            assert_close(got, want, "onnx", "float32", f"{name} {rows}x{steps}")


def test_the_file_is_plain_onnx(tagger):
    model = onnx.load(tagger[1])
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 21)]
    assert not model.functions
    assert sum(node.op_type == "Scan" for node in model.graph.node) == 4


@pytest.mark.parametrize("with_lengths", [False, True], ids=["whole", "ragged"])
@pytest.mark.parametrize("form", ["scan", "loop"])
def test_the_operator_of_every_cell(elementwise_cell, form, with_lengths):
    """The ONNX function for `tsm::layer` equals the layer, with every possible input."""
    cell = elementwise_cell
    layer = make_layer(cell, torch.float32)
    sample = make_sample(layer, with_lengths=with_lengths)
    with torch.no_grad():
        y, last = sample.run(layer)
    vectors = list(layer.vectors().values())
    given = {
        "x": sample.x,
        "weight_x": layer.matrix("weight_x"),
        "bias": layer.bias,
        "weight_h": layer.matrix("weight_h"),
        "state": torch.stack(list(sample.state.values())),
        "vectors": torch.stack(vectors) if vectors else torch.zeros(0, layer.hidden_size),
        "dt": sample.dt,
        "lengths": sample.lengths,
    }
    feeds = {n: v.detach().numpy() for n, v in given.items() if v is not None}
    constants = [layer.options[name] for name in cell.constants]
    function = layer_function("Layer", cell, constants, layer.hidden_size, list(feeds), form)
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    graph = helper.make_graph(
        [helper.make_node("Layer", list(feeds), list(FOUND), domain=DOMAIN)],
        "layer",
        [helper.make_tensor_value_info(n, kinds[n], v.shape) for n, v in feeds.items()],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in FOUND],
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR, functions=[function])
    session = onnxruntime.InferenceSession(model.SerializeToString())
    found_y, found_last = session.run(None, feeds)
    assert_close(found_y, y, "onnx", "float32", "y")
    for got, name in zip(found_last, cell.states, strict=True):
        assert_close(got, last[name], "onnx", "float32", name)


@pytest.mark.parametrize("proj_size", [0, 2])
def test_states_and_time_steps_go_in_and_out(proj_size, tmp_path):
    rnn = tsm.nn.PLSTM(I, H, num_layers=2, proj_size=proj_size)
    state = tuple(torch.rand(2, B, width) for width in (proj_size or H, H, H))
    path = tmp_path / "m.onnx"
    report = module_to_onnx(
        rnn,
        (torch.randn(T, B, I), state),
        path,
        kwargs={"dt": torch.rand(T, B) + 0.5},
        recurrence="loop",
    )
    assert report.passed and len(report.checks) == 2
    assert "Loop" in {node.op_type for node in onnx.load(path).graph.node}
    x, *states, dt = (one.shape for one in onnxruntime.InferenceSession(str(path)).get_inputs())
    steps, rows = dt
    assert isinstance(steps, str) and isinstance(rows, str) and x == [steps, rows, I]
    assert states == [[2, rows, proj_size or H], [2, rows, H], [2, rows, H]]


def test_a_layer_alone(tmp_path):
    """`Recurrent` is exported with its dicts of states, passed by name, and with custom names."""
    layer = Recurrent("plstm", I, H)
    state = {name: torch.rand(B, H) for name in layer.cell.states}
    path = tmp_path / "m.onnx"
    report = module_to_onnx(
        layer,
        (torch.randn(B, T, I),),
        path,
        kwargs={"state": state},
        output_names=["y", "h", "c", "age"],
    )
    assert report.passed and len(report.checks) == 2
    session = onnxruntime.InferenceSession(str(path))
    assert [one.name for one in session.get_outputs()] == ["y", "h", "c", "age"]
    rows, steps, width = session.get_inputs()[0].shape
    assert isinstance(rows, str) and isinstance(steps, str) and width == I


@pytest.mark.parametrize(
    "rows, steps, width, fixed",
    [(1, T, I, "0"), (B, 1, I, "1"), (1, 1, I, "0, 1"), (B, T, I, ""), (B, T, 1, "")],
)
def test_sizes_of_1_are_fixed_with_a_warning(tmp_path, rows, steps, width, fixed):
    layer = tsm.nn.LSTM(width, H, batch_first=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        module_to_onnx(layer, torch.randn(rows, steps, width), tmp_path / "m.onnx")
    found = [str(w.message) for w in told if "takes only size 1" in str(w.message)]
    expected = f"input: the file takes only size 1 in dimension {fixed}, as the example has"
    assert len(found) == bool(fixed) and all(one.startswith(expected) for one in found)
    (shape,) = [one.shape for one in onnxruntime.InferenceSession(tmp_path / "m.onnx").get_inputs()]
    assert [size == 1 for size in shape[:2]] == [rows == 1, steps == 1]


def test_a_composite_cell_is_traced_step_by_step(tmp_path):
    """T is fixed here, so verification tries no larger example."""
    path = tmp_path / "m.onnx"
    report = module_to_onnx(tsm.nn.RNN("nru", I, H), torch.randn(2, B, I), path)  # no tuple
    assert report.passed
    steps, batch, _ = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert steps.dim_value == 2 and not batch.dim_value


def test_more_inputs_are_compared(tmp_path):
    module = nn.Sequential(nn.Linear(I, I))
    report = module_to_onnx(
        module, (torch.randn(B, I),), tmp_path / "m.onnx", more_inputs=[(torch.randn(1, I),)]
    )
    assert report.checks[-1].what == "more_inputs[0] (1, 4)"


def test_a_wrong_translation_is_found(tagger, tmp_path, monkeypatch):
    """No file is written, and an existing file is kept."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"before")
    right = Translation.node

    def wrong(self, cell, constants, values):
        return right(self, cell, [0.5 for _ in constants], values)

    monkeypatch.setattr(Translation, "node", wrong)
    inputs = (torch.randint(20, (B, T)), torch.tensor([5, 2, 4]))
    with pytest.raises(VerifyError, match=r"m.onnx is not the model it was made from; 2 of 2 .*"):
        module_to_onnx(tagger[0], inputs, path)
    assert path.read_bytes() == b"before" and [*tmp_path.iterdir()] == [path]


def test_refusals(tmp_path, monkeypatch):
    layer, x = Recurrent("lstm", I, H), torch.randn(B, T, I)
    with pytest.raises(ValueError, match=r"recurrence = 'unrolled'; accepted: scan, loop"):
        module_to_onnx(layer, (x,), tmp_path / "m.onnx", recurrence="unrolled")
    with pytest.raises(ValueError, match=r"weight_x is torch.float64; accepted: torch.float32"):
        module_to_onnx(Recurrent("lstm", I, H).double(), (x,), tmp_path / "m.onnx")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        module_to_onnx(layer, (x,), tmp_path / "no" / "m.onnx")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"onnxscript is not installed; run: pip install"):
        module_to_onnx(layer, (x,), tmp_path / "m.onnx")


def test_more_weights_than_a_file_holds(tmp_path):
    module = nn.Linear(2**15, 2**14, device="meta")  # 2 GiB that take no memory
    with pytest.raises(ValueError, match="2,147,549,184 bytes of weights; accepted in one ONNX"):
        module_to_onnx(module, (torch.zeros(2, 2**15),), tmp_path / "m.onnx")


def test_through_torch_export(tmp_path):
    """A saved program accepts any batch size and length."""
    module = Tagger().eval()
    sizes = {0: torch.export.Dim("B"), 1: torch.export.Dim("T")}
    inputs = (torch.randint(20, (B, T)), torch.tensor([5, 2, 4]))
    program = torch.export.export(module, inputs, dynamic_shapes=(sizes, {0: sizes[0]}))
    torch.export.save(program, tmp_path / "m.pt2")
    again = torch.export.load(tmp_path / "m.pt2").module()
    tokens, lengths = torch.randint(20, (6, 11)), torch.tensor([11, 2, 4, 1, 7, 8])
    expected, found = module(tokens, lengths), again(tokens, lengths)
    for name, value in expected.items():
        assert_close(found[name], value, "chunks", "float32", name)
