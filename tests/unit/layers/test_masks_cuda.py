"""Dropout that a GPU layer applies while it copies its weights, over kernels that are emulated on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch

import emulated_cuda
from tsm.plugin.layers import Recurrent, over_time
from tsm.plugin.layers.choose import Route
from tsm.plugin.layers.parameters import drop_mask, kept_scale, weight_drop

P = 0.4


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    emulated_cuda.install(monkeypatch)
    monkeypatch.setattr(over_time, "choose", lambda *given: Route("layer_cuda"))


def factors(layer: Recurrent) -> torch.Tensor:
    """What the next call multiplies weight_h by."""
    if len(layer.cell.gates_of("h")) < len(layer.cell.gates):
        return weight_drop(torch.ones_like(layer.weight_h), P, True)
    return drop_mask(layer.weight_h, P) * kept_scale(P)


def gradients(layer: Recurrent, x: torch.Tensor, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The output, and the gradients of x and all parameters; twice, since the graph is retained."""
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        y, _ = layer(x)
    assert y.dtype == dtype
    leaves = {"x": x, **{n: p for n, p in layer.named_parameters() if p.requires_grad}}
    loss = (y.float() * torch.linspace(-1, 1, y.numel()).view_as(y)).sum()
    again = torch.autograd.grad(loss, leaves.values(), retain_graph=True)
    once = torch.autograd.grad(loss, leaves.values())
    assert all(torch.equal(a, b) for a, b in zip(again, once, strict=True))
    return {"y": y, **dict(zip(leaves, once, strict=True))}


def dropped_and_masked(cell, dtype, width=11, **options):
    """`gradients` of a layer with dropout, and of one whose weights were multiplied by the mask before; the
    factors."""
    layer = Recurrent(cell.name, 4, width, weight_dropout=P, **options)
    x = torch.randn(3, 5, 4, requires_grad=True)
    torch.manual_seed(3)
    by = factors(layer)
    assert 0 < by.count_nonzero() < by.numel()
    plain = copy.deepcopy(layer).eval()
    plain.weight_h.data.mul_(by)
    expected = gradients(plain, x, dtype)
    torch.manual_seed(3)
    return gradients(layer, x, dtype), expected, by


@pytest.mark.parametrize("width", [8, 11])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_equals_weights_masked_before(compiled_u_cell, dtype, width):
    found, expected, by = dropped_and_masked(compiled_u_cell, dtype, width)
    expected["weight_h"] *= by
    assert expected["weight_h"].count_nonzero()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name


def test_frozen_weights(representative_cell):
    found, expected, _ = dropped_and_masked(
        representative_cell, torch.float32, freeze_recurrent=True
    )
    assert "weight_h" not in found and found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_saved_tensors_that_a_hook_has_replaced(representative_cell):
    def strided(t):
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t.clone()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, strided):
        found, expected, by = dropped_and_masked(representative_cell, torch.float32)
    expected["weight_h"] *= by
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_each_call_draws_a_mask_in_training_only():
    layer, x = Recurrent("lstm", 4, 8, weight_dropout=P), torch.randn(3, 5, 4)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    with torch.no_grad():
        assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert layer(x[:0])[0].shape == (0, 5, 8)


@pytest.mark.parametrize("p", [0.1, 0.2, 0.3, 0.45, 0.5, 0.9])
def test_the_scale_is_that_of_torch(p):
    torch.manual_seed(0)
    assert weight_drop(torch.ones(99), p, True).max().item() == kept_scale(p)
