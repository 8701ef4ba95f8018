"""Each primitive: numpy equals torch, its derivative rule equals autograd, and a gate's inverse inverts it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tsm.plugin.cells.tape.ops import ARITHMETIC, PRIMITIVES, NumpyOps
from tsm.plugin.cells.tape.torch_ops import TorchOps

FUNCTIONS = [name for name, p in PRIMITIVES.items() if p.derivative and name not in ARITHMETIC]
GATES = [name for name, p in PRIMITIVES.items() if p.bias_for]


def points(name):
    spread = np.concatenate([np.linspace(-30, 30, 241), [0.0, 1e-9, -1e-9, 7.4999, 7.5001]])
    return np.abs(spread) + 1e-3 if name == "log" else spread


@pytest.mark.parametrize("name", FUNCTIONS)
def test_value_and_derivative(name):
    x = points(name)
    tensor = torch.tensor(x, requires_grad=True)
    y = getattr(NumpyOps, name)(x)
    expected = getattr(TorchOps, name)(tensor)
    np.testing.assert_allclose(y, expected.detach().numpy(), rtol=1e-13, atol=1e-15)
    expected.sum().backward()
    (slope,) = PRIMITIVES[name].derivative(NumpyOps, (x,), y, np.ones_like(x))
    np.testing.assert_allclose(slope, tensor.grad.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_stays_nan(name):
    assert np.isnan(getattr(NumpyOps, name)(np.array([np.nan]))).all()
    assert torch.isnan(getattr(TorchOps, name)(torch.tensor([torch.nan]))).all()


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize("logit", [-6.0, -1.0, 0.0, 0.3, 1.0, 5.0])
def test_bias_for_reaches_the_value(name, logit):
    bias = PRIMITIVES[name].bias_for(logit)
    value = float(getattr(NumpyOps, name)(np.float64(bias)))
    value = math.exp(value) if PRIMITIVES[name].log else value
    assert value == pytest.approx(1 / (1 + math.exp(-logit)), rel=1e-12)
    assert PRIMITIVES[name].bias_for(-logit) == -bias  # odd: see Tape.gate_bias


def test_fast_sigmoid_is_saturated_at_its_limit():
    edge = np.array([7.5, 1e4])
    assert (NumpyOps.fast_sigmoid(edge) == 1).all() and (NumpyOps.fast_sigmoid(-edge) == 0).all()


def test_log_sigmoid_is_exact_and_finite_everywhere():
    x = np.array([-1e300, -1e4, -800.0, 800.0, 1e4, 1e300])
    np.testing.assert_array_equal(NumpyOps.log_sigmoid(x), np.minimum(x, 0))
    np.testing.assert_allclose(
        NumpyOps.log_sigmoid(points("log_sigmoid")),
        -np.logaddexp(0, -points("log_sigmoid")),
        atol=2e-16,
    )
