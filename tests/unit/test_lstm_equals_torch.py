"""Our LSTM with PyTorch's weights is torch.nn.LSTM."""

from __future__ import annotations

import pytest
import torch

from samples import backends
from tolerances import assert_close
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent


@pytest.mark.parametrize("backend", backends(get_cell("lstm"), torch.float64))
def test_outputs_and_gradients(backend):
    theirs = torch.nn.LSTM(5, 8, batch_first=True).double()
    ours = Recurrent("lstm", 5, 8, backend=backend).double()
    with torch.no_grad():
        ours.weight_x.copy_(theirs.weight_ih_l0)
        ours.weight_h.copy_(theirs.weight_hh_l0)
        ours.bias.copy_(theirs.bias_ih_l0 + theirs.bias_hh_l0)
    h, c = (torch.randn(1, 3, 8, dtype=torch.float64) for _ in range(2))
    x = torch.randn(3, 20, 5, dtype=torch.float64)
    x1, x2 = (x.clone().requires_grad_() for _ in range(2))
    expected, (expected_h, expected_c) = theirs(x1, (h, c))
    found, last = ours(x2, {"h": h[0], "c": c[0]})
    weight = torch.randn_like(expected)
    ((expected * weight).sum() + expected_c.sum()).backward()
    ((found * weight).sum() + last["c"].sum()).backward()
    for name, a, b in [
        ("y", found, expected),
        ("h", last["h"], expected_h[0]),
        ("c", last["c"], expected_c[0]),
        ("grad x", x2.grad, x1.grad),
        ("grad weight_x", ours.weight_x.grad, theirs.weight_ih_l0.grad),
        ("grad weight_h", ours.weight_h.grad, theirs.weight_hh_l0.grad),
        ("grad bias", ours.bias.grad, theirs.bias_ih_l0.grad),
    ]:
        assert_close(a, b, "torch_lstm", "float64", name)
