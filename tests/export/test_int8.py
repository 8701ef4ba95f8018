"""int8 in tsm's ONNX files is exact on any processor: no product saturates."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tsm.export.onnx.file import inline
from tsm.export.onnx.model import IR, OPSET
from tsm.export.onnx.nodes import Graph
from tsm.export.onnx.products import Products

FLOAT = onnx.TensorProto.FLOAT


def product(matrix, transposed):
    """An ONNX Runtime session that computes y = x W in int8 for x [N,K], as the exporter writes it."""
    products, graph = Products("int8"), Graph()
    entered = matrix.T if transposed else matrix
    products.enter(graph, "W", entered, scaled=0 if transposed else 1)
    products.multiply(graph, "x", "W", "y", transposed)
    body = helper.make_graph(
        graph.nodes,
        "product",
        [helper.make_tensor_value_info("x", FLOAT, ["N", matrix.shape[0]])],
        [helper.make_tensor_value_info("y", FLOAT, ["N", matrix.shape[1]])],
        inline(graph.arrays),
    )
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(body, opset_imports=opset, ir_version=IR)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 16])
@pytest.mark.parametrize("size", [(2, 1), (33, 7), (256, 64)])
def test_largest_products(size, rows, transposed):
    """Values of 127 and -127 on both sides: as uint8 x int8, a 16-bit sum of two products would overflow."""
    rng = np.random.default_rng(0)
    for signs in ((1, 1), (1, -1), (-1, 1), (-1, -1), None):
        x = np.full((rows, size[0]), 127.0, np.float32)
        w = np.full(size, 127.0, np.float32)
        if signs is None:
            x, w = (a * rng.choice([-1, 1], a.shape).astype(np.float32) for a in (x, w))
        else:
            x, w = x * signs[0], w * signs[1]
        (y,) = product(w, transposed).run(None, {"x": x})
        assert np.array_equal(y, x @ w), signs
