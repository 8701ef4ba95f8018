"""Tests with a single product whether ONNX Runtime's dynamic int8 gives wrong results on this processor.

On x86 without VNNI, ONNX Runtime multiplies uint8 by int8 with an instruction whose sums of two products
saturate at 16 bits. Its int8 x int8 products, which tsm's exporter uses, do not saturate
(tests/export/test_int8.py).
"""

from __future__ import annotations

from functools import cache

from ..plugin.common.lazy import np

# y = MatMulInteger(a, b) with a uint8 [1,2] and b int8 [2,1], serialised, because the package onnx may be
# missing.
GRAPH = bytes.fromhex(
    "080a3a5c0a180a01610a0162120179220d4d61744d756c496e74656765721201675a130a0161120e0a0c0802"
    "12080a0208010a0208025a130a0162120e0a0c080312080a0208020a02080162130a0179120e0a0c08061208"
    "0a0208010a02080142040a001015"
)


@cache
def saturates() -> bool:
    import onnxruntime

    session = onnxruntime.InferenceSession(GRAPH, providers=["CPUExecutionProvider"])
    a, b = np.full((1, 2), 255, np.uint8), np.full((2, 1), 127, np.int8)
    (y,) = session.run(None, {"a": a, "b": b})
    return int(y[0, 0]) != 2 * 255 * 127
