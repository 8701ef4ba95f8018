"""The toy problem: its gates are compared with those of the cells, the gradient flow with numerical
integration, and the rates with a fit."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import lambertw

from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.tasks import toy

REFERENCE = {
    "sigmoid": NumpyOps.sigmoid,
    "fast": NumpyOps.fast_sigmoid,
    "softsign": NumpyOps.softsign_gate,
}


@pytest.mark.parametrize("name", REFERENCE)
def test_gates_are_the_cells_gates(name):
    for z in np.linspace(-4, 4, 41):
        assert 1 - toy.GATES[name][0]((z,))[0] == pytest.approx(REFERENCE[name](z), abs=1e-14)


def test_refine_is_the_papers_formula():
    for a in (-2.0, 0.0, 3.0):
        for b in (-1.0, 0.0, 2.0):
            f, r = NumpyOps.sigmoid(a), NumpyOps.sigmoid(b)
            expected = r * (1 - (1 - f) ** 2) + (1 - r) * f**2
            assert 1 - toy.refine((a, b))[0] == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("name", toy.GATES)
def test_slopes(name):
    gate, start = toy.GATES[name]
    for z in (-1.3, 0.2, 1.7):
        point = tuple(z + 0.3 * i for i in range(len(start)))
        for i, slope in enumerate(gate(point)[1]):
            up = tuple(v + 1e-6 * (k == i) for k, v in enumerate(point))
            down = tuple(v - 1e-6 * (k == i) for k, v in enumerate(point))
            assert slope == pytest.approx((gate(down)[0] - gate(up)[0]) / 2e-6, rel=1e-7)


@pytest.mark.parametrize("name", REFERENCE)
def test_flow_is_the_integral(name):
    """For a single number z, tau is the integral of dz / (10 f^9 f')."""
    gate = toy.GATES[name][0]

    def pace(z):
        u, (slope,) = gate((z,))
        return 1 / (10 * (1 - u) ** 9 * slope)

    for end in (0.5, 1.0, 2.0):
        tau = quad(pace, 0, end, epsabs=1e-12, epsrel=1e-12, limit=500)[0]
        assert toy.flow(name, np.array([tau]))[0] == pytest.approx(gate((end,))[0], rel=1e-7)


TAU = np.geomspace(1, 1e8, 300)


@pytest.mark.parametrize(
    ("name", "exponent"), [("softsign", -1 / 3), ("sigmoid", -1.0), ("refine", -1.0)]
)
def test_rates_of_the_flow(name, exponent):
    found = toy.rate_exponent(TAU, toy.flow(name, TAU), since=1e6)
    assert found == pytest.approx(exponent, abs=0.005)


def test_fast_beats_every_power_minus_one():
    """u tau keeps falling, like 1 / log^2, so u stays below W^2(c / sqrt tau) of table 1."""
    u = toy.flow("fast", TAU)
    late = TAU > 1e3
    assert np.all(np.diff((u * TAU)[late]) < 0)
    begin = np.argmax(late)
    w = math.sqrt(u[begin])
    c = w * math.exp(w) * math.sqrt(TAU[begin])
    bound = lambertw(c / np.sqrt(TAU[late])).real ** 2
    assert np.all(u[late] <= bound * (1 + 1e-9))
    steady = (u * TAU * np.log(1 / u) ** 2)[TAU > 1e5]  # du/dtau = -10 u^2 log^2 u
    assert steady.max() / steady.min() < 1.1


def test_curves_of_every_gate():
    curves = toy.toy_curves(steps=3000, points=60)
    assert list(curves) == ["softsign", "sigmoid", "refine", "fast"]
    for curve in curves.values():
        assert curve.tau[0] == 0 and curve.tau[-1] == 3000
        assert curve.descent[0] == curve.flow[0] == 0.5
        assert np.all(np.diff(curve.flow) < 0) and np.all(np.diff(curve.descent) < 0)
        late = curve.tau > 1000
        assert np.allclose(curve.descent[late], curve.flow[late], rtol=0.02)
    last = [curves[name].flow[-1] for name in curves]
    assert last == sorted(last, reverse=True)


def test_descent_is_the_plain_loop():
    z, seen = 0.0, []
    for _ in range(21):
        f = 1 / (1 + math.exp(-z))
        seen.append(1 - f)
        z -= -10 * f**9 * f * (1 - f)
    assert toy.descent("sigmoid", np.arange(21)) == pytest.approx(seen, rel=1e-12)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="unknown gate 'sigmid'; did you mean sigmoid"):
        toy.toy_curves(10, 5, ["sigmid"])
    with pytest.raises(ValueError, match="steps is 0"):
        toy.toy_curves(0)
