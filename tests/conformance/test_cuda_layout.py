"""The GPU layer's layouts, products and gradients on any machine: its kernels are emulated on the CPU."""

from __future__ import annotations

import pytest
import torch

import emulated_cuda
from tolerances import assert_close
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.contract import LayerCall
from tsm.plugin.layers.operator import run_function

SHAPES = [(3, 5, 4, 8), (2, 4, 3, 11), (1, 1, 1, 1)]  # B, T, I, H


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    emulated_cuda.install(monkeypatch)


def both(cell, route, shape, odd):
    """Outputs and gradients of that route, and of the reference in float64. odd: lengths, dt and states."""
    B, T, I, H = shape
    layer = Recurrent(cell.name, I, H, backend="fused")
    exact = Recurrent(cell.name, I, H, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, I)
    state = {name: torch.rand(B, H) / 2 for name in cell.states} if odd else {}
    lengths = torch.arange(B) % (T + 1) if odd else None
    dt = torch.rand(B, T) + 0.5 if odd and cell.takes_dt else None
    weights = [torch.randn(B, T, H), *(torch.randn(B, H) for _ in cell.states)]
    found = []
    for one in (layer, exact):
        kind = one.weight_x.dtype
        own = x.to(kind).requires_grad_()
        first = [value.to(kind).requires_grad_() for value in state.values()]
        step = None if dt is None else dt.to(kind)
        if one is layer:
            inputs = [
                own,
                layer.weight_x,
                layer.bias,
                layer.weight_h,
                *first,
                *layer._raw_vectors(),
            ]
            call = LayerCall(cell.name, layer._constants, kind, shape, (kind,) * 4)
            y, last = run_function(route, call, layer._links, step, lengths, inputs)
        else:
            y, last = one(own, dict(zip(state, first, strict=True)) or None, step, lengths)
            last = list(last.values())
        loss = sum((t * w.to(kind)).sum() for t, w in zip([y, *last], weights, strict=True))
        leaves = [own, *first, *one.parameters()]
        again = torch.autograd.grad(loss, leaves, retain_graph=True)
        once = torch.autograd.grad(loss, leaves)
        assert all(torch.equal(a, b) for a, b in zip(again, once, strict=True))
        found.append([y, *last, *once])
    names = ["y", *cell.states, "grad x", *(f"grad {n}" for n in state)]
    return [*names, *(f"grad {n}" for n, _ in layer.named_parameters())], *found


@pytest.mark.parametrize("odd", [False, True], ids=["plain", "lengths, dt, states"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("route", ["layer_cuda", "steps_cuda"])
def test_equals_the_reference(compiled_cell, route, shape, odd):
    for name, got, want in zip(*both(compiled_cell, route, shape, odd), strict=True):
        scale = want.abs().max().clamp(min=1)
        assert_close(got / scale, want / scale, "fused", "float32", name)
