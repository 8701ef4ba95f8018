"""A layer trained on the CPU with one call per direction: sizes, threads, batches, and gradients that are not
needed."""

from __future__ import annotations

import pytest
import torch

from tolerances import assert_close
from tsm.plugin.layers import Recurrent

SIZES = [(1, 1, 1, 1), (3, 2, 1, 7), (4, 5, 16, 33), (1, 9, 5, 16), (2, 3, 32, 420)]  # B, T, I, H
DTYPES = (torch.float32, torch.bfloat16)


def gradients(layer, x, dtype=torch.float32):
    """y, and the gradients of a weighted sum of y by name."""
    x = x.detach().requires_grad_(x.requires_grad)
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        y, _ = layer(x)
    weight = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view_as(y)
    (y * weight.to(y.dtype)).sum().backward()
    found = {name: p.grad.clone() for name, p in layer.named_parameters() if p.grad is not None}
    return y.detach(), found | ({"x": x.grad} if x.requires_grad else {})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_odd_sizes(compiled_cell, size, dtype):
    B, T, I, H = size
    layer = Recurrent(compiled_cell.name, I, H, backend="fused")
    exact = Recurrent(compiled_cell.name, I, H, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, I, requires_grad=True)
    (y, found), (want_y, want) = gradients(layer, x, dtype), gradients(exact, x.double())
    kind = str(dtype).removeprefix("torch.")
    assert_close(y, want_y, "fused", kind, "y")
    assert found.keys() == want.keys()
    for name, gradient in want.items():
        scale = gradient.abs().max().clamp(min=1)
        assert_close(found[name] / scale, gradient / scale, "fused", kind, name)


def test_threads_and_company_change_no_bit(compiled_cell):
    layer = Recurrent(compiled_cell.name, 19, 65, backend="fused")
    x = torch.randn(23, 9, 19, requires_grad=True)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 7):
            torch.set_num_threads(threads)
            y, grads = gradients(layer, x)
            found.append([y, *grads.values()])
        alone = [layer(x[i : i + 1])[0] for i in range(len(x))]
    finally:
        torch.set_num_threads(before)
    for one, two, seven in zip(*found, strict=True):
        assert torch.equal(one, two) and torch.equal(one, seven)
    assert torch.equal(torch.cat(alone), found[0][0])


def test_what_is_not_asked_for_changes_nothing_else(compiled_cell):
    layer = Recurrent(compiled_cell.name, 5, 12, backend="fused")
    x = torch.randn(3, 7, 5, requires_grad=True)
    _, everything = gradients(layer, x)
    for wanted in everything:
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name == wanted)
        _, one = gradients(layer, x if wanted == "x" else x.detach())
        assert one.keys() == {wanted}
        assert torch.equal(one[wanted], everything[wanted])


def test_sums_over_many_steps_keep_their_digits():
    """Each weight gradient is a sum over 131,072 rows of [B,T]."""
    layer = Recurrent("lstm", 3, 4, backend="fused")
    exact = Recurrent("lstm", 3, 4, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(2048, 64, 3)
    for one in (layer, exact):
        one(x.to(one.weight_x.dtype))[0].sum().backward()
    for (name, found), want in zip(layer.named_parameters(), exact.parameters(), strict=True):
        error = (found.grad - want.grad).abs().max() / want.grad.abs().max()
        assert error < 2e-6, name  # adding in one float32 accumulator would be off by 1e-5 or more


def test_a_view_with_its_sign_turned():
    layer = Recurrent("lstm", 3, 4, backend="fused")
    x = torch.randn(2, 5, 3)
    assert torch.equal(layer(torch._neg_view(x))[0], layer(-x)[0])


def test_another_default_device():
    layer = Recurrent("lstm", 3, 4, backend="fused")
    x = torch.randn(2, 5, 3)
    expected = layer(x)[0]
    with torch.device("meta"):
        assert torch.equal(layer(x)[0], expected)


@pytest.mark.parametrize("backend", ["fused", "reference"])
def test_states_may_be_changed_in_place(compiled_cell, backend):
    """Training with carried states sets some rows of the states to 0 in place, to restart these rows."""
    layer = Recurrent(compiled_cell.name, 3, 4, backend=backend)
    y, state = layer(torch.randn(2, 5, 3))
    for value in state.values():
        value.mul_(torch.tensor([[1.0], [0.0]]))
    (
        y.sum() + sum(value.sum() for value in layer(torch.randn(2, 5, 3), state)[1].values())
    ).backward()
    assert layer.weight_x.grad.isfinite().all()


@pytest.mark.parametrize("state_dtype", DTYPES, ids=str)
def test_gradients_through_each_state(compiled_cell, state_dtype):
    """Gradients flow from one state after the chunk to every state before it, while the other states after the
    chunk are unused."""
    B, T, I, H = 3, 6, 5, 12
    layer = Recurrent(compiled_cell.name, I, H, backend="fused")
    exact = Recurrent(compiled_cell.name, I, H, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    x = torch.randn(B, T, I)
    first = {name: torch.rand(B, H).to(state_dtype) for name in compiled_cell.states}
    weight = torch.linspace(-1, 1, B * H, dtype=torch.float64).view(B, H)
    for used in compiled_cell.states:
        found = []
        for one in (layer, exact):
            kind = one.weight_x.dtype
            given = {k: v.to(kind) if one is exact else v for k, v in first.items()}
            leaves = {k: v.detach().clone().requires_grad_() for k, v in given.items()}
            _, last = one(x.to(kind), leaves)
            wanted = [*leaves.values(), *one.parameters()]
            loss = (last[used] * weight).sum()
            found.append(torch.autograd.grad(loss, wanted, allow_unused=True))
        names = [*first, *(name for name, _ in layer.named_parameters())]
        for name, got, want in zip(names, *found, strict=True):
            if want is None:
                assert got is None or not got.any(), name
                continue
            kind = state_dtype if name in first else torch.float32
            assert got.dtype == kind
            scale = want.abs().max().clamp(min=1)
            assert_close(got / scale, want / scale, "fused", str(kind).removeprefix("torch."), name)


def test_the_state_that_was_given_may_be_changed_afterwards(compiled_cell):
    """A caller may reuse one buffer for the state and overwrite it before backward."""
    layer = Recurrent(compiled_cell.name, 3, 4, backend="fused")
    x, found = torch.randn(2, 5, 3), []
    first = {name: torch.rand(2, 4) for name in compiled_cell.states}
    for change in (False, True):
        state = {name: value.clone() for name, value in first.items()}
        y, last = layer(x, state)
        if change:
            for name, value in last.items():
                state[name].copy_(value.detach())
        found.append(torch.autograd.grad(y.sum(), list(layer.parameters())))
    assert all(map(torch.equal, *found))


def test_only_what_is_learned_has_a_gradient():
    """Neither a fixed vector nor a frozen learned one has a gradient."""
    fixed = Recurrent("plstm", 3, 4, backend="fused", p=0.7)
    frozen = Recurrent("plstm", 3, 4, backend="fused")
    frozen.load_state_dict(
        {k: v for k, v in fixed.state_dict().items() if k != "p"} | {"p_raw": torch.logit(fixed.p)}
    )
    frozen.p_raw.requires_grad_(False)
    x = torch.randn(2, 5, 3)
    (_, want), (_, found) = gradients(fixed, x), gradients(frozen, x)
    assert found.keys() == want.keys() == {"weight_x", "weight_h", "bias"}
    for name, gradient in want.items():
        assert_close(found[name], gradient, "fused", "float32", name)


def test_only_what_is_asked_for_is_accumulated():
    layer = Recurrent("plstm", 3, 4, backend="fused")
    x = torch.randn(2, 5, 3, requires_grad=True)
    for wanted in (x, layer.bias, layer.p_raw):
        (found,) = torch.autograd.grad(layer(x)[0].sum(), wanted)
        assert found.shape == wanted.shape
    assert all(one.grad is None for one in (x, *layer.parameters()))


def test_times_and_lengths_with_gaps_between_them():
    layer = Recurrent("plstm", 3, 4, backend="fused")
    x, dt, lengths = torch.randn(2, 5, 3), torch.rand(2, 5) + 0.5, torch.tensor([5, 2])
    expected = layer(x, dt=dt, lengths=lengths)[0]
    apart = [torch.stack([one, one + 9], -1)[..., 0] for one in (dt, lengths)]
    assert not any(one.is_contiguous() for one in apart)
    assert torch.equal(layer(x, dt=apart[0], lengths=apart[1])[0], expected)
    assert torch.equal(layer(x, dt=dt, lengths=lengths.int())[0], expected)


@pytest.mark.parametrize("name", ["weight_x", "bias", "weight_h", "p_raw"])
def test_other_shapes_are_refused(name):
    """torch.func.functional_call may pass parameters of another shape."""
    layer = Recurrent("plstm", 3, 4, backend="fused")
    short = {name: layer.get_parameter(name)[:-1]}
    with pytest.raises(ValueError, match="accepted"):
        torch.func.functional_call(layer, short, torch.randn(2, 5, 3))
