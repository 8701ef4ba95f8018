"""How closely two computations of the same thing must agree, in one table, each row with its reason.

|actual - expected| <= absolute + relative * |expected|, element by element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tolerance:
    absolute: float
    relative: float
    why: str


TOLERANCES: dict[tuple[str, str], Tolerance] = {
    ("numpy", "float64"): Tolerance(
        1e-12, 1e-12, "same program, two maths libraries, some 20 steps"
    ),
    ("tape", "float64"): Tolerance(1e-13, 1e-12, "same operations in the same order, one step"),
    ("fused", "float64"): Tolerance(1e-10, 1e-10, "fma and another order of summation"),
    ("fused", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits over some 20 steps and sums over the batch"
    ),
    ("fused", "bfloat16"): Tolerance(3e-2, 3e-2, "both round h and y to 8 bits, gradients too"),
    ("cuda_gradient", "float32"): Tolerance(1e-5, 0, "of the largest; sums over batch and steps"),
    ("cuda_gradient", "bfloat16"): Tolerance(
        3e-2, 0, "of the largest; dz, h and the kept z are rounded to 8 bits"
    ),
    ("nru_cuda", "bfloat16"): Tolerance(
        0.05,
        3,
        "in the 2-norm; relative to the error of the reference: 8 bits, and where relu turns off",
    ),
    ("cuda_training", "float32"): Tolerance(1e-3, 0, "losses of 200 updates, each on the last's"),
    ("cuda_training", "bfloat16"): Tolerance(
        5e-2, 5e-2, "the same, with 8 bits of h and of every gradient of it"
    ),
    ("chunks", "float64"): Tolerance(1e-13, 1e-12, "torch may block its products by their size"),
    ("chunks", "float32"): Tolerance(2e-6, 2e-6, "torch may block its products by their size"),
    ("absolute_k", "float64"): Tolerance(1e-12, 1e-12, "age form against k form in long double"),
    ("absolute_k_dt", "float64"): Tolerance(1e-11, 1e-11, "the same with random dt and eps 1e-5"),
    ("onnx", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits over some 20 steps; ONNX Runtime's sigmoid is 0 or 1 from |x| = 18"
    ),
    ("consumers", "float32"): Tolerance(
        1e-4, 1e-4, "24 bits, another library's sigmoid, tanh and sums; some 20 steps, two layers"
    ),
    ("consumers", "float16"): Tolerance(
        1e-2, 1e-2, "the same; one rounding to 11 bits may go the other way"
    ),
    ("consumers", "int8"): Tolerance(
        5e-2, 5e-2, "the same; one rounding to 8 bits may go the other way"
    ),
    ("onnx_int8", "float32"): Tolerance(
        0.1, 0.1, "8 bits in weights and activations, one scale for a whole batch of activations"
    ),
    ("stream", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits in the runtime against float64, some 20 steps and two layers"
    ),
    ("stream", "bfloat16"): Tolerance(
        2e-2, 2e-2, "8 bits in weights and in what they are multiplied with, some 20 steps"
    ),
    ("stream", "int8"): Tolerance(
        4e-2, 4e-2, "8 bits in weights and activations, one scale a row, some 20 steps"
    ),
    ("torch_layer", "float64"): Tolerance(1e-12, 1e-12, "the same formula in torch.nn"),
    ("paper", "float64"): Tolerance(1e-12, 1e-12, "another form of the same formula, 40 steps"),
}


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    return np.asarray(value)


def assert_close(actual: Any, expected: Any, kind: str, dtype: str, what: str = "value") -> None:
    """Fails if a difference is too large, and reports the place and size of the worst one."""
    got, want = _array(actual), _array(expected)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    tolerance = TOLERANCES[kind, dtype]
    allowed = tolerance.absolute + tolerance.relative * np.abs(want)
    excess = np.abs(got - want) - allowed
    bad = ~(excess <= 0)  # also true for NaN
    if bad.any():
        where = np.unravel_index(
            np.argmax(np.where(np.isnan(excess), np.inf, excess)), excess.shape
        )
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.size} differ; worst at {tuple(map(int, where))}: "
            f"{got[where]!r}, expected {want[where]!r}, allowed {float(allowed[where]):.3g} "
            f"({kind} {dtype}: {tolerance.why})"
        )
