"""Dropout that a GPU layer applies while it copies x and U: on a GPU, and over kernels emulated on the CPU."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import emulated_cuda
from tsm.plugin.layers import Recurrent, over_time
from tsm.plugin.layers.choose import Route
from tsm.plugin.layers.dropout import drop_mask, dropped, kept_scale, locked_dropout, weight_drop

P, Q = 0.3, 0.4
AUTOCAST = [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)]  # dtype of x


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], ids=["emulated", "gpu"]
)
def device(request, monkeypatch):
    if request.param == "cpu":
        emulated_cuda.install(monkeypatch)
        monkeypatch.setattr(over_time, "choose", lambda *given: Route("layer_cuda"))
    return request.param


def factors(layer: Recurrent, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the next call multiplies x and weight_h by."""
    u = layer.weight_h
    if len(layer.cell.gates_of("h")) < len(layer.cell.gates):
        of_x, of_u = dropped(torch.ones_like(x), torch.ones_like(u), (P, Q))
        return of_x[:, :1], of_u
    of_x, of_u = (drop_mask(like.shape, p, x.device) for like, p in ((x[:, :1], P), (u, Q)))
    return of_x * kept_scale(P, x.dtype), of_u * kept_scale(Q, torch.float32)


def gradients(
    layer: Recurrent, x: Tensor, autocast: bool, by: Tensor | None = None
) -> dict[str, Tensor]:
    """The output, and the gradients of x and all parameters; twice, since the graph is retained. by: what x is
    multiplied by before."""
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=autocast):
        y, _ = layer(x if by is None else x * by.to(x.dtype))
    assert y.dtype == (torch.bfloat16 if autocast else torch.float32)
    leaves = {"x": x, **{n: p for n, p in layer.named_parameters() if p.requires_grad}}
    loss = (y.float() * torch.linspace(-1, 1, y.numel(), device=y.device).view_as(y)).sum()
    again = torch.autograd.grad(loss, leaves.values(), retain_graph=True)
    once = torch.autograd.grad(loss, leaves.values())
    assert all(torch.equal(a, b) for a, b in zip(again, once, strict=True))
    return {"y": y, **dict(zip(leaves, once, strict=True))}


def with_and_without(device, cell, x_dtype, autocast, width=11, **options):
    """`gradients` of a layer with dropout, and of one without whose x and U were masked before."""
    layer = Recurrent(cell.name, 4, width, weight_dropout=Q, input_dropout=P, **options)
    layer.to(device)
    x = torch.randn(3, 5, 4, dtype=x_dtype, device=device, requires_grad=True)
    torch.manual_seed(3)
    of_x, of_u = factors(layer, x)
    assert all(0 < by.count_nonzero() < by.numel() for by in (of_x, of_u))
    plain = copy.deepcopy(layer).eval()
    plain.weight_h.data.mul_(of_u)
    expected = gradients(plain, x, autocast, of_x)
    if "weight_h" in expected:
        expected["weight_h"] *= of_u
    torch.manual_seed(3)
    return gradients(layer, x, autocast), expected


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert value.count_nonzero(), name
        assert found[name].dtype == value.dtype and torch.equal(found[name], value), name


@pytest.mark.parametrize("width", [8, 11])
@pytest.mark.parametrize("x_dtype, autocast", AUTOCAST)
def test_equals_inputs_masked_before(device, compiled_u_cell, x_dtype, autocast, width):
    assert_same(*with_and_without(device, compiled_u_cell, x_dtype, autocast, width))


def test_frozen_weights(device, representative_cell):
    found, expected = with_and_without(
        device, representative_cell, torch.float32, False, freeze_recurrent=True
    )
    assert "weight_h" not in found
    assert_same(found, expected)


def test_saved_tensors_that_a_hook_has_replaced(device, representative_cell):
    def strided(t):
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t.clone()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, strided):
        assert_same(*with_and_without(device, representative_cell, torch.float32, False))


@pytest.mark.parametrize("rates", [{"weight_dropout": Q}, {"input_dropout": P}], ids=str)
def test_each_call_draws_a_mask_in_training_only(device, rates):
    layer = Recurrent("lstm", 4, 8, **rates).to(device)
    x = torch.randn(3, 5, 4, device=device)
    found = layer(x)[0]
    found.sum().backward()
    assert not torch.equal(found, layer(x)[0])
    with torch.no_grad():
        assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert layer(x[:0])[0].shape == (0, 5, 8)


@pytest.mark.parametrize("p", [0.1, 0.2, 0.3, 0.45, 0.5, 0.9])
def test_the_scale_is_that_of_torch(p):
    torch.manual_seed(0)
    assert weight_drop(torch.ones(99), p, True).max().item() == kept_scale(p, torch.float32)
    for dtype in (torch.float32, torch.bfloat16):
        ones = torch.ones(9, 1, 9, dtype=dtype)
        assert locked_dropout(ones, p, True).max().item() == kept_scale(p, dtype)
