"""tsm's LSTM and GRU with PyTorch's weights equal torch.nn's: one layer, reference and compiled."""

from __future__ import annotations

import pytest
import torch

from tolerances import assert_close
from tsm.export.contract.samples import backends
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.parameters import all_rows

THEIRS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


@pytest.mark.parametrize(
    "name, backend", [(n, b) for n in THEIRS for b in backends(get_cell(n), torch.float64)]
)
def test_outputs_and_gradients(name, backend):
    cell = get_cell(name)
    theirs = THEIRS[name](5, 8, batch_first=True).double()
    ours = Recurrent(name, 5, 8, backend=backend).double()
    with torch.no_grad():
        ours.weight_x.copy_(theirs.weight_ih_l0)
        ours.weight_h.copy_(theirs.weight_hh_l0)
        of_x, of_h = all_rows(cell, "x", theirs.bias_ih_l0), all_rows(cell, "h", theirs.bias_hh_l0)
        ours.bias.copy_(of_x + of_h)
    first = [torch.randn(1, 3, 8, dtype=torch.float64) for _ in cell.states]
    x = torch.randn(3, 20, 5, dtype=torch.float64)
    x1, x2 = (x.clone().requires_grad_() for _ in range(2))
    expected, expected_last = theirs(x1, tuple(first) if len(first) > 1 else first[0])
    found, last = ours(x2, {n: value[0] for n, value in zip(cell.states, first, strict=True)})
    if len(first) == 1:
        expected_last = (expected_last,)
    weight = torch.randn_like(expected)
    ((expected * weight).sum() + expected_last[-1].sum()).backward()
    ((found * weight).sum() + last[cell.states[-1]].sum()).backward()
    bias = all_rows(cell, "h", theirs.bias_hh_l0.grad)  # gates that read h, then the others
    bias = torch.where(bias == 0, all_rows(cell, "x", theirs.bias_ih_l0.grad), bias)
    for what, a, b in [
        ("y", found, expected),
        *((n, last[n], value[0]) for n, value in zip(cell.states, expected_last, strict=True)),
        ("grad x", x2.grad, x1.grad),
        ("grad weight_x", ours.weight_x.grad, theirs.weight_ih_l0.grad),
        ("grad weight_h", ours.weight_h.grad, theirs.weight_hh_l0.grad),
        ("grad bias", ours.bias.grad, bias),
    ]:
        assert_close(a, b, "torch_layer", "float64", what)
