"""torch's own exporters on layers of tsm: they work, or the error names what does."""

from __future__ import annotations

import io

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import tsm.nn
from tsm.plugin.layers import Recurrent

T, B, I, H = 5, 3, 4, 6
LAYERS = {
    "LSTM": lambda: tsm.nn.LSTM(I, H, 2, bidirectional=True),
    "PLSTM": lambda: tsm.nn.PLSTM(I, H),
    "RNN": lambda: tsm.nn.RNN("janet", I, H),
    "in a module": lambda: nn.Sequential(tsm.nn.GRU(I, H)),
    "Recurrent": lambda: Recurrent("plstm", I, H),
}


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_onnx_export_names_module_to_onnx(name, dynamo, tmp_path):
    said = r"accepted: tsm\.export\.module_to_onnx\(module, args, path\).* backend=\"reference\""
    with pytest.raises((NotImplementedError, torch.onnx.errors.OnnxExporterError), match=said):
        torch.onnx.export(
            LAYERS[name]().eval(), (torch.randn(T, B, I),), tmp_path / "m.onnx", dynamo=dynamo
        )


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(
    "layer", [tsm.nn.PLSTM(I, H, backend="reference"), tsm.nn.RNN("nru", I, 16)], ids=repr
)
def test_onnx_export_unrolls_formulas(layer, dynamo, tmp_path):
    x = torch.randn(T, B, I)
    torch.onnx.export(layer.eval(), (x,), tmp_path / "m.onnx", dynamo=dynamo)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    y, *states = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    expected, last = layer(x)
    for one, other in zip([y, *states], [expected, *last], strict=True):
        assert np.allclose(one, other.detach(), atol=1e-5)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_jit_trace_works_for_any_size(name, frozen):
    layer = LAYERS[name]().eval().requires_grad_(not frozen)
    traced = torch.jit.trace(layer, (torch.randn(T, B, I),), strict=name != "Recurrent")
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    x = torch.randn(2 * T, B + 1, I)
    for one in (traced, torch.jit.load(file)):
        y, expected = one(x)[0], layer(x)[0]
        assert torch.equal(y, expected)
        if not frozen:
            grads = [
                torch.autograd.grad(value.sum(), list(module.parameters()))
                for module, value in ((one, y), (layer, expected))
            ]
            assert all(torch.allclose(a, b, rtol=1e-5) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_jit_script_names_other_ways(name):
    said = r"torch\.jit\.script cannot compile \w+; accepted: torch\.jit\.trace, torch\.export"
    with pytest.raises(NotImplementedError, match=said):
        torch.jit.script(LAYERS[name]())
