"""The age in cells is equivalent to the papers' absolute reference time k, without its loss of precision."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tolerances import assert_close
from tsm.plugin.cells.tape.ops import NumpyOps

STEPS, UNITS = 3_000, 5


def drive(cell, rng):
    """Random pre-activations [STEPS, UNITS] per gate, and vectors, in float64."""
    z = {g: rng.normal(size=(STEPS, UNITS)) * 3 for g in cell.gates}
    return z, {v: rng.uniform(0.05, 0.95, size=UNITS) for v in cell.vectors}


def step(cell, z, c, age, v, const, dt, dtype):
    """One step of the program; these cells do not read h."""
    as_type = lambda values: SimpleNamespace(**{n: np.asarray(x, dtype) for n, x in values.items()})  # noqa: E731
    states = {"h": np.zeros(UNITS), "c": c, "age": age}
    return cell.step(
        NumpyOps, as_type(z), as_type(states), as_type(v), as_type(const), np.asarray(dtype(dt))
    )


def absolute_form(cell, z, v, const, dts, clock=0.0):
    """The papers' recursion in long double: k = r t + (1 - r) k', f from k and k~. Yields (t, k, c).

    r and the input to c are found by probing the program: with age' = 0 and dt = 1 its new age is
    1 - r, and its c is affine in c', with slope f.
    """
    long = np.longdouble
    t, k, c = long(clock), np.full(UNITS, long(clock)), np.zeros(UNITS, long)
    zero = np.zeros(UNITS, long)
    resets = 1 - step(cell, z, zero, zero, v, const, 1.0, long)["age"]  # [STEPS, UNITS]
    both = np.stack([zero, zero + 1])
    for r, dt, *zn in zip(resets, dts, *z.values(), strict=False):
        probe = dict(zip(cell.gates, zn, strict=True))
        before, after = step(cell, probe, both, t - k, v, const, dt, long)["c"]
        slope = after - before
        t = t + long(dt)
        reset = r * (t - dt + 1) + (1 - r) * k
        k = r * t + (1 - r) * k
        f = ((t - k + 1) / (t - dt - reset + 1 + long(const["eps"]))) ** -v["p"].astype(long)
        lost = (
            100 * np.spacing(t) / long(const["eps"])
        )  # rounding error of t - k, even in long double
        assert np.abs(f - slope).max() < 1e-13 + lost, f"at t = {t}: f = {f}, the program's {slope}"
        c = f * c + before
        yield t, k, c


@pytest.mark.parametrize("kind", ["absolute_k", "absolute_k_dt"])
def test_age_form_equals_absolute_form(power_law_cell, kind):
    rng = np.random.default_rng(1)
    z, v = drive(power_law_cell, rng)
    with_dt = kind == "absolute_k_dt"
    const = {**power_law_cell.constants, **({"eps": 1e-5} if with_dt else {})}
    dts = rng.uniform(1e-3, 3, size=STEPS) if with_dt else np.ones(STEPS)
    c = age = np.zeros(UNITS)
    found, expected = [], []
    for n, (t, k, exact_c) in enumerate(absolute_form(power_law_cell, z, v, const, dts)):
        new = step(
            power_law_cell, {g: x[n] for g, x in z.items()}, c, age, v, const, dts[n], np.float64
        )
        c, age = new["c"], new["age"]
        found.append((c, age))
        expected.append((exact_c, t - k))
    assert_close(np.array(found), np.array(expected), kind, "float64", "c and age")


def test_k_is_exact_at_position_1e9(power_law_cell):
    """k = time - age is correct to the last bit of a float64 clock, even with float32 states."""
    rng = np.random.default_rng(2)
    z, v = drive(power_law_cell, rng)
    const, start = power_law_cell.constants, 1e9
    c = age = np.zeros(UNITS, np.float32)
    spacing = np.spacing(start)
    for n, (t, k, _) in enumerate(absolute_form(power_law_cell, z, v, const, np.ones(1000), start)):
        new = step(
            power_law_cell, {g: x[n] for g, x in z.items()}, c, age, v, const, 1.0, np.float32
        )
        c, age = new["c"], new["age"]
        clock = start + n + 1.0
        assert clock == t
        allowed = spacing + 1e-5 * np.abs(clock - k.astype(float))
        assert (np.abs((clock - age.astype(float)) - k.astype(float)) <= allowed).all(), f"step {n}"
