"""Forgetting curves: the share of a unit's memory at time 0 that is left n steps later.

    S_n = d c_n / d c_0 = f_1 f_2 ... f_n,    f_t = d c_t / d c_{t-1} with z fixed (see retention.py)

`forgetting_curves` computes the curve of an element-wise cell with constant gates. Because c is affine in c',
S_n is also what is left of an initial memory c_0 = 1 when nothing new is written (z_g = 0). All other states
start at 0: a power-law unit has just been reset (age 0) when c_0 is stored.

    LSTM       S_n = f^n
    power law  S_n = (n + 1)^-p while the reset gate is closed (eps -> 0);
               with r > 0 the age levels off at (1 - r) / r, and from there on S_n falls as (1 - r)^(p n)

A composite cell has no forget factor. Instead, `gap_curves` runs the layer twice on zero input:

    S_n = |m_n - m~_n| / |m_0 - m~_0|,    m_0 = 0, m~_0 a random vector of length 1, h_0 = 0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ...cells import Cell
from ...cells.tape.ops import NumpyOps
from ...common.checks import check_integer
from ...layers import Recurrent
from .numpy_layer import NumpyLayer
from .retention import memory_of, retention

NOTHING: Mapping[str, Any] = MappingProxyType({})


def forgetting_curves(
    cell: type[Cell],
    steps: int,
    gates: Mapping[str, Any] = NOTHING,
    vectors: Mapping[str, Any] = NOTHING,
    options: Mapping[str, Any] = NOTHING,
    dt: float = 1.0,
) -> np.ndarray:
    """S_1 .. S_steps, float64 [..., steps], computed by the cell's program in numpy.

    gates: the constant value of a gate in (0, 1), a number or an array; gates that are not given have z = 0.
    vectors: the value of a vector, also a number or an array, which must be above the vector's lower bound; all
    vectors that f reads must be given. Arrays are broadcast against each other. options: the cell's constants
    (`eps=1e-5`).
    """
    check_integer("steps", steps)
    kept = retention(cell)
    numbers = cell.check(1, options)
    _check_names("gates", gates, cell.gates)
    _check_names("vectors", vectors, tuple(cell.vectors))
    missing = [name for name in kept.vectors if name not in vectors]
    if missing:
        raise ValueError(f"vectors has no {missing[0]!r}, on which forgetting depends; add it")
    inputs: dict[str, Any] = {f"z.{g}": 0.0 for g in cell.gates}
    inputs |= {f"z.{g}": gate_input(cell, g, value) for g, value in gates.items()}
    inputs |= {f"v.{name}": 1.0 for name in cell.vectors}
    inputs |= {f"v.{name}": _vector(cell, name, value) for name, value in vectors.items()}
    inputs |= {f"k.{name}": numbers[name] for name in cell.constants}
    inputs["dt"] = dt
    shape = np.broadcast_shapes(*(np.shape(value) for value in inputs.values()))
    states = {f"s.{name}": np.zeros(shape) for name in cell.states}
    states[f"s.{kept.memory}"] = np.ones(shape)
    left = np.ones(shape)
    curves = np.empty((steps, *shape))
    for n in range(steps):
        here = {**inputs, **states}
        left = left * kept.factor(here)
        curves[n] = left
        states = {f"s.{name}": x for name, x in cell.tape().run(NumpyOps, here).items()}
    return np.moveaxis(curves, 0, -1)


def gate_input(cell: type[Cell], gate: str, value: Any) -> np.ndarray:
    """The pre-activation at which `gate` has the given value."""
    inverse = cell.gate_bias(gate) if cell.elementwise else None
    if inverse is None:
        raise ValueError(f"gate {gate!r} of cell {cell.name!r} has no activation with an inverse")
    values = np.asarray(value, dtype=np.float64)
    if not ((values > 0) & (values < 1)).all():
        raise ValueError(f"gates[{gate!r}] = {value!r}; accepted: numbers between 0 and 1")
    return np.vectorize(lambda v: inverse(math.log(v) - math.log1p(-v)), otypes=[float])(values)


def gap_curves(layer: Recurrent, steps: int, pairs: int = 16, seed: int = 0) -> np.ndarray:
    """S_1 .. S_steps of the layer's memory on zero input, float64 [pairs, steps]: one row per random m~_0.

    Works for any kind of cell and uses the layer's actual weights. If the cell is not bounded, values may
    exceed 1.
    """
    check_integer("steps", steps)
    check_integer("pairs", pairs)
    run, memory = NumpyLayer(layer), memory_of(layer.cell)
    start = np.random.default_rng(seed).standard_normal((pairs, layer.widths[memory]))
    state = run.zero_state(2 * pairs)
    state[memory][pairs:] = start / np.linalg.norm(start, axis=-1, keepdims=True)
    zx = np.broadcast_to(run.bias, (2 * pairs, len(run.bias)))
    curves = np.empty((pairs, steps))
    with np.errstate(over="ignore", invalid="ignore"):
        for n in range(steps):
            state = run.advance(zx, state, 1.0)
            gap = state[memory][pairs:] - state[memory][:pairs]
            curves[:, n] = np.linalg.norm(gap, axis=-1)
    return curves


def _check_names(field: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            accepted = ", ".join(known) or "(none)"
            raise ValueError(f"{field} has {name!r}; accepted: {accepted}")


def _vector(cell: type[Cell], name: str, value: Any) -> np.ndarray:
    values, above = np.asarray(value, dtype=np.float64), cell.vectors[name].above
    if not (np.isfinite(values) & (values > above)).all():
        raise ValueError(f"vectors[{name!r}] = {value!r}; accepted: finite numbers above {above:g}")
    return values
