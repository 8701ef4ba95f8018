"""The sLSTM equals the paper's stabilised form, written out here in float64, for gate inputs up to 1e4."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tolerances import assert_close
from tsm.export.contract.samples import backends
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent

B, T, I, H = 3, 40, 4, 5


def stabilised(layer, x, n):
    """(y, c / n, log n) by eq. 8 to 17 of Beck et al. 2024, with c and n divided by e^m; `n` is the initial
    value."""
    weight_x, weight_h, bias = (
        p.detach().numpy() for p in (layer.weight_x, layer.weight_h, layer.bias)
    )
    h = c = np.zeros((B, H))
    n, m, y = np.full((B, H), n), np.zeros((B, H)), []
    for step in x.numpy().swapaxes(0, 1):
        zi, zf, zg, zo = np.split(step @ weight_x.T + h @ weight_h.T + bias, 4, axis=1)
        log_f = -np.logaddexp(0, -zf)
        new = np.maximum(log_f + m, zi)
        i, f, m = np.exp(zi - new), np.exp(log_f + m - new), new
        c, n = f * c + i * np.tanh(zg), f * n + i
        h = c / n * np.exp(-np.logaddexp(0, -zo))
        y.append(h)
    return np.stack(y, 1), c / n, np.log(n) + m


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("backend", backends(get_cell("slstm"), torch.float64))
def test_equals_the_stabilised_form(backend, scale):
    layer = Recurrent("slstm", I, H, backend=backend).double()
    x = torch.randn(B, T, I, dtype=torch.float64) * scale
    y, last = layer(x)
    for name, found, expected in zip(
        ("y", "a", "l"), (y, last["a"], last["l"]), stabilised(layer, x, 1.0), strict=True
    ):
        assert_close(found, expected, "paper", "float64", name)


def test_the_papers_start():
    """The paper starts with n = 0; here n starts so small that it has no effect in float64."""
    layer = Recurrent("slstm", I, H).double()
    x = torch.randn(B, T, I, dtype=torch.float64)
    state = layer.zero_state(B)
    state["l"] -= 50.0
    y, _ = layer(x, state)
    assert_close(y, stabilised(layer, x, 0.0)[0], "paper", "float64", "y")


@pytest.mark.parametrize("backend", backends(get_cell("slstm"), torch.float32))
def test_gates_at_1e4(backend):
    """z varies between -1e4 and 1e4, for which the paper's i = e^z would overflow."""
    layer = Recurrent("slstm", 4, 4, backend=backend)
    with torch.no_grad():
        layer.weight_x.copy_(1e4 * torch.eye(4).repeat_interleave(4, 0))
    x = torch.randint(-1, 2, (B, 200, 4)).float().requires_grad_()
    y, last = layer(x)
    (y.sum() + last["l"].sum()).backward()
    for value in (y, *last.values(), x.grad, *(p.grad for p in layer.parameters())):
        assert value.isfinite().all()
    assert y.abs().max() <= 1 and y[:, -50:].abs().max() > 0.1
