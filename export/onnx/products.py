"""Matrices of an ONNX graph in float32, float16 or int8, and products with them. Values outside are float32.

    float32   y = x W
    float16   y = float32(float16(x) W): weights and activations in half, sums as the consumer computes them
    int8      y = (q W8) s w,  s = max|x| / 127 of each row of x, q = round(x / s), w one scale per output

int8 rounds each row (one step of a stream) separately, as the C++ runtime does. DynamicQuantizeLinear, the
operator made for this, has one scale per tensor: the results of a stream would depend on its chunks and on the
other streams in its batch.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from onnx import TensorProto

from ..common.runner import Array
from .nodes import Graph

DTYPES = ("float32", "float16", "int8")
LEAST_SCALE = 1e-30  # divisor for a row of zeros


class Products:
    """Adds matrices to a graph and multiplies by them."""

    def __init__(self, dtype: str = "float32") -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype = {dtype!r}; accepted for ONNX: {', '.join(DTYPES)}")
        self.dtype = dtype

    def enter(self, graph: Graph, name: str, matrix: Array, scaled: int = 1) -> str:
        """Adds the matrix [K,M] as an initialiser; with int8, it has one scale per index of axis `scaled`."""
        if self.dtype != "int8":
            return graph.tensor(name, np.asarray(matrix, self.dtype))
        scale = np.abs(matrix).max(axis=1 - scaled, keepdims=True).astype(np.float32) / 127
        scale[scale == 0] = 1
        graph.tensor(f"{name}.scale", scale)
        return graph.tensor(name, np.rint(matrix / scale).astype(np.int8))

    def multiply(
        self, graph: Graph, x: str, name: str, output: str, transposed: bool = False
    ) -> str:
        """x [...,K] times the matrix `name`, which has one scale per output; `transposed`: it is [M,K]."""
        matrix, scale = name, f"{name}.scale"
        if transposed:
            matrix = graph.add("Transpose", [name], f"{output}_weight", perm=[1, 0])
            if self.dtype == "int8":
                scale = graph.add("Transpose", [scale], f"{output}_weight_scale", perm=[1, 0])
        if self.dtype == "float32":
            return graph.add("MatMul", [x, matrix], output)
        if self.dtype == "float16":
            half = graph.add("Cast", [x], f"{output}_half", to=TensorProto.FLOAT16)
            product = graph.add("MatMul", [half, matrix], f"{output}_product")
            return graph.add("Cast", [product], output, to=TensorProto.FLOAT)
        last = graph.tensor("axis_last", np.array([-1], np.int64))
        size = graph.add("Abs", [x], f"{output}_abs")
        most = graph.add("ReduceMax", [size, last], f"{output}_most", keepdims=1)
        share = graph.add("Mul", [most, graph.number(1 / 127)], f"{output}_share")
        row = graph.add("Max", [share, graph.number(LEAST_SCALE)], f"{output}_row")
        scaled = graph.add("Div", [x, row], f"{output}_scaled")
        whole = graph.add("Round", [scaled], f"{output}_whole")
        eight = graph.add("Cast", [whole], f"{output}_eight", to=TensorProto.INT8)
        total = graph.add("MatMulInteger", [eight, matrix], f"{output}_total")
        real = graph.add("Cast", [total], f"{output}_real", to=TensorProto.FLOAT)
        return graph.add("Mul", [graph.add("Mul", [real, row], f"{output}_by_row"), scale], output)

    def rows(self, graph: Graph, name: str, index: str, output: str, scaled: int) -> str:
        """Looks up rows of the matrix: index [N,T] -> float32 [N,T,M]; `scaled` as in `enter`."""
        if self.dtype == "float32":
            return graph.add("Gather", [name, index], output, axis=0)
        found = graph.add("Gather", [name, index], f"{output}_row", axis=0)
        if self.dtype == "float16":
            return graph.add("Cast", [found], output, to=TensorProto.FLOAT)
        real = graph.add("Cast", [found], f"{output}_real", to=TensorProto.FLOAT)
        scale = f"{name}.scale"
        if scaled == 0:
            scale = graph.add("Gather", [scale, index], f"{output}_scale", axis=0)
        return graph.add("Mul", [real, scale], output)


def spread(graph: Graph, name: str, output: str, sizes: Iterable[int], axis: int = 1) -> list[str]:
    """The value split along an axis into parts of the given sizes."""
    sizes = list(sizes)
    parts = [f"{output}_{i}" for i in range(len(sizes))]
    if len(sizes) == 1:
        return [name]
    key = "sizes_" + "_".join(map(str, sizes if len(set(sizes)) > 1 else [len(sizes), sizes[0]]))
    graph.add_many("Split", [name, graph.tensor(key, np.array(sizes, np.int64))], parts, axis=axis)
    return parts
