"""How closely two computations of the same thing must agree, in one table, each row with its reason.

|actual - expected| <= absolute + relative * |expected|, element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


class Violation(AssertionError):
    """A cell does not fulfil a part of its contract; the message says where, and by how much."""


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
    ("chunks", "float64"): Tolerance(1e-13, 1e-12, "torch may block its products by their size"),
    ("stream", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits in the runtime against float64, some 20 steps and two layers"
    ),
    ("stream", "bfloat16"): Tolerance(
        2e-2, 2e-2, "8 bits in weights and in what they are multiplied with, some 20 steps"
    ),
    ("stream", "int8"): Tolerance(
        4e-2, 4e-2, "8 bits in weights and activations, one scale a row, some 20 steps"
    ),
}
"""Those of the contract; tests/tolerances.py has the others."""


def _array(value: Any) -> np.ndarray[Any, Any]:
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    return np.asarray(value)


def check_close(
    actual: Any,
    expected: Any,
    kind: str,
    dtype: str,
    what: str = "value",
    table: Mapping[tuple[str, str], Tolerance] = TOLERANCES,
) -> float:
    """Returns the largest difference; raises Violation, with the place and size of the worst one, if it is too
    large."""
    got, want = _array(actual), _array(expected)
    if got.shape != want.shape:
        raise Violation(f"{what}: shape {got.shape}, expected {want.shape}")
    tolerance = table[kind, dtype]
    difference = np.abs(got - want)
    allowed = tolerance.absolute + tolerance.relative * np.abs(want)
    excess = difference - allowed
    bad = ~(excess <= 0)  # also true for NaN
    if bad.any():
        where = np.unravel_index(
            np.argmax(np.where(np.isnan(excess), np.inf, excess)), excess.shape
        )
        raise Violation(
            f"{what}: {int(bad.sum())} of {bad.size} differ; worst at {tuple(map(int, where))}: "
            f"{got[where].item()!r}, expected {want[where].item()!r}, allowed {float(allowed[where]):.3g} "
            f"({kind} {dtype}: {tolerance.why})"
        )
    return float(np.max(difference, initial=0.0))
