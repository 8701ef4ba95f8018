"""Large tensors of training reuse memory, which must not change any number."""

import pytest
import torch

from tsm.plugin.layers import Recurrent, core

DTYPES = [torch.float32, torch.float64, torch.bfloat16]
ALWAYS, NEVER = 1, 1 << 62


def training_step(layer, x):
    """(y, gradients of every parameter and of x)."""
    y, _ = layer(x)
    wanted = [x, *layer.parameters()]
    return y, torch.autograd.grad(y.square().sum(), wanted)


@pytest.fixture(params=DTYPES, ids=str)
def layer(request):
    torch.manual_seed(0)
    return Recurrent("plstm", 7, 19, backend="fused").to(request.param)


def inputs(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(3, 11, 7, generator=generator)
    return x.to(layer.weight_x.dtype).requires_grad_()


def same(found, expected):
    return all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_the_numbers_do_not_depend_on_it(layer, monkeypatch):
    x = inputs(layer, 1)
    monkeypatch.setattr(core, "LARGE", NEVER)
    y, gradients = training_step(layer, x)
    monkeypatch.setattr(core, "LARGE", ALWAYS)
    for _ in range(3):  # from the second run on, memory holds old numbers
        again, found = training_step(layer, x)
        assert torch.equal(again, y) and same(found, gradients)


def test_graphs_that_live_at_once_have_their_own(layer, monkeypatch):
    monkeypatch.setattr(core, "LARGE", ALWAYS)
    first, second = inputs(layer, 1), inputs(layer, 2)
    expected = training_step(layer, first)[1], training_step(layer, second)[1]
    y1, _ = layer(first)
    y2, _ = layer(second)
    del y2
    layer(second)
    found = torch.autograd.grad(y1.square().sum(), [first, *layer.parameters()])
    assert same(found, expected[0])
    assert same(training_step(layer, second)[1], expected[1])


def test_a_graph_may_be_used_twice(layer, monkeypatch):
    monkeypatch.setattr(core, "LARGE", ALWAYS)
    x = inputs(layer, 3)
    y, _ = layer(x)
    wanted = [x, *layer.parameters()]
    first = torch.autograd.grad(y.square().sum(), wanted, retain_graph=True)
    assert same(torch.autograd.grad(y.square().sum(), wanted), first)


def test_frozen_weights_and_inputs_have_no_gradient(layer, monkeypatch):
    monkeypatch.setattr(core, "LARGE", ALWAYS)
    layer.weight_x.requires_grad_(False)
    y, _ = layer(inputs(layer, 4).detach())
    y.sum().backward()
    assert layer.weight_x.grad is None and layer.bias.grad is not None


def test_autocast_still_chooses_the_dtype(monkeypatch):
    monkeypatch.setattr(core, "LARGE", ALWAYS)
    layer = Recurrent("plstm", 7, 19, backend="fused")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = layer(inputs(layer, 5))
    assert y.dtype == torch.bfloat16


def test_the_last_use_of_a_graph_spends_what_was_kept():
    layer = Recurrent("plstm", 7, 19, backend="fused")
    x = inputs(layer, 6)
    y, _ = layer(x)
    kept = y.grad_fn.saved_tensors[-1]
    before = kept.clone()
    torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    assert torch.equal(kept, before)
    torch.autograd.grad(y.square().sum(), x)
    assert not torch.equal(kept, before)


def test_a_spent_graph_is_refused():
    """A second backward is refused even if a hook raised after the gradients were computed, so that autograd
    did not mark the graph as used."""
    layer = Recurrent("plstm", 7, 19, backend="fused")
    y, _ = layer(inputs(layer, 7))

    def stumble(*_):
        raise ValueError("a hook of the user's")

    handle = y.grad_fn.register_hook(stumble)
    with pytest.raises(ValueError, match="a hook"):
        y.sum().backward()
    handle.remove()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.sum().backward()


def test_what_hooks_hand_out_is_not_written_to():
    layer = Recurrent("plstm", 7, 19, backend="fused")
    x = inputs(layer, 8)
    expected = training_step(layer, x)[1]
    handed_out = []

    def unpack(copy):
        handed_out.append((copy, copy.clone()))
        return copy

    with torch.autograd.graph.saved_tensors_hooks(torch.clone, unpack):
        found = training_step(layer, x)[1]
    assert same(found, expected)
    assert handed_out and all(torch.equal(now, before) for now, before in handed_out)
