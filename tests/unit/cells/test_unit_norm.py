"""The norm of nru's rows: one formula, safe for huge and tiny rows, in numpy, torch, TorchScript and ONNX.

Like `normalize` of torch in float32, which the cell's authors use, it turns a row with a norm above
FLT_MAX^(1/5) into 0.
"""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tsm.export.onnx.model import IR, OPSET
from tsm.export.onnx.nodes import Graph, tape_nodes
from tsm.export.torch.nru import unit_norm as scriptable
from tsm.plugin.cells.nru import NORM
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.cells.tape.rows import unit_norm, unit_norm_tape
from tsm.plugin.cells.tape.torch_ops import TorchOps

SIZES = [1e-36, 1e-20, 1e-13, 1e-12, 1e-9, 1e-4, 1.0, 1e4, 1e7, 1e9, 1e20, 1e37]
LIMIT = float(np.finfo(np.float32).max) ** 0.2


def in_onnx(x: np.ndarray) -> np.ndarray:
    graph = Graph()
    found = tape_nodes(graph, unit_norm_tape(*NORM), {"x": "x"})["y"]
    shape = ["N", x.shape[1]]
    made = helper.make_graph(
        graph.nodes,
        "unit_norm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(found, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(value, name) for name, value in graph.arrays.items()],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=IR).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


FORMS = {
    "numpy": lambda x: unit_norm(NumpyOps, x, *NORM),
    "torch": lambda x: unit_norm(TorchOps, torch.from_numpy(x), *NORM).numpy(),
    "TorchScript": lambda x: torch.jit.script(scriptable)(torch.from_numpy(x)).numpy(),
    "ONNX": in_onnx,
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_every_size_in_float32(form):
    rows = np.random.default_rng(1).standard_normal((len(SIZES), 9))
    x = (rows * np.array(SIZES)[:, None]).astype(np.float32)
    exact = x.astype(np.float64)
    norm = np.linalg.norm(exact, ord=5, axis=1, keepdims=True)
    expected = np.where(norm > LIMIT, 0, exact / np.maximum(norm, 1e-12))
    np.testing.assert_allclose(FORMS[form](x), expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_of_zeros_stays_one(form):
    assert not FORMS[form](np.zeros((2, 4), np.float32)).any()


def test_values_and_gradients_of_torch_on_both_sides_of_the_limit():
    """Torch's gradient is not a number where the fourth power of an entry overflows, too: above 4e9."""
    rows = torch.randn(6, 9, generator=torch.Generator().manual_seed(3))
    norms = torch.tensor([1e6, 0.99 * LIMIT, 1.01 * LIMIT, 1e8, 1e9, 1e15])[:, None]
    x = rows / rows.norm(5, dim=1, keepdim=True) * norms
    weights = torch.randn(6, 9, generator=torch.Generator().manual_seed(4))
    found = []
    for normed in (
        lambda x: unit_norm(TorchOps, x, *NORM),
        lambda x: torch.nn.functional.normalize(x, p=5.0, dim=1, eps=1e-12),
    ):
        leaf = x.clone().requires_grad_()
        y = normed(leaf)
        (y * weights).sum().backward()
        found.append((y.detach(), leaf.grad))
    (ours, gradient), (theirs, expected) = found
    assert ours[:2].abs().amax(1).gt(0.5).all() and not ours[2:].any()
    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=0)
    assert gradient[:2].any(1).all() and not gradient[2:].any()
    torch.testing.assert_close(gradient[:5], expected[:5], rtol=1e-4, atol=1e-14)


def test_gradients():
    """Gradients match finite differences, and are finite at zero, where the norm has no derivative."""
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: unit_norm(TorchOps, x, *NORM), x)
    zero = torch.zeros(2, 4, requires_grad=True)
    unit_norm(TorchOps, zero, *NORM).sum().backward()
    assert torch.isfinite(zero.grad).all()
