"""The GPU layer's memory layouts, matrix products and gradients, tested on any machine: its kernels are
emulated on the CPU."""

from __future__ import annotations

import pytest
import torch

import emulated_cuda
from tolerances import assert_close
from tsm.plugin.layers import Recurrent, layer_cuda, operator
from tsm.plugin.layers.contract import LayerCall
from tsm.plugin.layers.operator import layer_operator, run_function
from tsm.plugin.layers.sketch import Sketch

SHAPES = [(3, 5, 4, 8), (2, 4, 3, 11), (1, 1, 1, 1)]  # B, T, I, H


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    emulated_cuda.install(monkeypatch)


def both(cell, shape, odd):
    """Outputs and gradients of `layer_cuda`, and of the reference in float64. With `odd`,
    lengths, dt and states are given."""
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
                layer.matrix("weight_x"),
                layer.bias,
                layer.matrix("weight_h"),
                *first,
                *layer._raw_vectors(),
            ]
            call = LayerCall(cell.name, layer._constants, kind, shape, (kind,) * 4, layer._links)
            y, last = run_function("layer_cuda", call, step, lengths, inputs)
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
def test_equals_the_reference(compiled_cell, shape, odd):
    for name, got, want in zip(*both(compiled_cell, shape, odd), strict=True):
        scale = want.abs().max().clamp(min=1)
        assert_close(got / scale, want / scale, "fused", "float32", name)


def arguments(cell, shape=(3, 5, 4, 11), dtype=torch.float32):
    """(layer, call, inputs): the arguments of `run_function`, without states."""
    layer = Recurrent(cell.name, shape[2], shape[3])
    x = torch.randn(*shape[:3], requires_grad=True)
    matrices = layer.matrix("weight_x"), layer.bias, layer.matrix("weight_h")
    inputs = [x, *matrices, *layer._raw_vectors()]
    call = LayerCall(cell.name, layer._constants, dtype, shape, (torch.float32,) * 4, layer._links)
    return layer, call, inputs


def test_bfloat16_products_of_float32_parameters(compiled_cell):
    """As under autocast."""
    layer, call, inputs = arguments(compiled_cell, dtype=torch.bfloat16)
    y, last = run_function("layer_cuda", call, None, None, inputs)
    exact = Recurrent(compiled_cell.name, 4, 11, backend="reference").double()
    exact.load_state_dict(layer.state_dict())
    x = inputs[0].detach().double().requires_grad_()
    want, want_last = exact(x)
    assert y.dtype == torch.bfloat16 and last[0].dtype == torch.float32
    assert_close(y, want, "fused", "bfloat16", "y")
    for found, state in zip(last, want_last.values(), strict=True):
        assert_close(found, state, "fused", "bfloat16", "state")
    got = torch.autograd.grad(y.float().sum(), [inputs[0], *layer.parameters()])
    expected = torch.autograd.grad(want.sum(), [x, *exact.parameters()])
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == torch.float32
        scale = other.abs().max().clamp(min=1)
        assert_close(one / scale, other / scale, "cuda_gradient", "bfloat16", "a gradient")


def test_vectors_that_are_not_learned(compiled_cell):
    """Frozen, and as the only ones that need a gradient: the same gradients."""
    layer, call, inputs = arguments(compiled_cell)
    raw = layer._raw_vectors()
    others = [p for p in layer.parameters() if all(p is not r for r in raw)]

    def gradients(wanted):
        for p in layer.parameters():
            p.requires_grad_(any(p is w for w in wanted))
        y, _ = run_function("layer_cuda", call, None, None, inputs)
        return torch.autograd.grad(y.square().sum(), wanted) if wanted else ()

    inputs[0].requires_grad_(False)
    everything, alone = gradients([*others, *raw]), gradients(raw)
    assert all(map(torch.equal, everything, [*gradients(others), *alone]))
    for gradient in alone:
        assert gradient.abs().sum() > 0
        gradient.mul_(torch.ones(1, requires_grad=True))  # not a view that torch protects


def test_a_second_derivative_is_refused(representative_cell):
    _, call, inputs = arguments(representative_cell)
    y, _ = run_function("layer_cuda", call, None, None, inputs)
    (first,) = torch.autograd.grad(y.square().sum(), inputs[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward"):
        first.sum().backward()


def test_a_view_with_its_sign_turned(representative_cell):
    _, call, inputs = arguments(representative_cell)
    turned = torch._neg_view(inputs[0].detach())
    found = [
        run_function("layer_cuda", call, None, None, [x, *inputs[1:]])[0]
        for x in (turned, -inputs[0].detach())
    ]
    assert torch.equal(*found)


def test_what_lies_past_a_length_does_not_matter(representative_cell):
    layer, call, inputs = arguments(representative_cell)
    lengths, spoilt = torch.tensor([2, 5, 0]), inputs[0].detach().clone()
    spoilt[0, 2:], spoilt[2] = float("nan"), float("inf")
    found = []
    for x in (inputs[0].detach(), spoilt):
        y, _ = run_function("layer_cuda", call, None, lengths, [x, *inputs[1:]])
        found.append(torch.autograd.grad(y.sum(), layer.weight_h)[0])
    assert torch.equal(*found)


def test_saved_tensors_that_a_hook_has_replaced(representative_cell):
    layer, call, inputs = arguments(representative_cell)

    def gradient():
        y, _ = run_function("layer_cuda", call, None, None, inputs)
        return torch.autograd.grad(y.sum(), [inputs[0], layer.weight_h])

    expected = gradient()

    def strided(t):
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else t.clone()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, strided):
        found = gradient()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.flatten()[:-1]):
        y, _ = run_function("layer_cuda", call, None, None, inputs)
        with pytest.raises((ValueError, RuntimeError)):
            y.sum().backward()


@pytest.mark.parametrize("which", ["dt", "lengths"])
def test_a_hook_that_shortens(which, power_law_cell):
    _, call, inputs = arguments(power_law_cell)
    given = {"dt": torch.ones(3, 5), "lengths": torch.tensor([2, 5, 0])}
    shape = given[which].shape

    def shortened(t):
        return t[:-1].clone() if t.shape == shape else t

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, shortened):
        y, _ = run_function("layer_cuda", call, given["dt"], given["lengths"], inputs)
    with pytest.raises(ValueError, match=which):
        y.sum().backward()


def test_saved_tensors_that_a_hook_has_put_at_odd_addresses(representative_cell, monkeypatch):
    """The kernels read 16 bytes at a time; a slice of a buffer of a hook may begin anywhere."""
    layer, call, inputs = arguments(representative_cell)
    run, read = layer_cuda.backward, []

    def backward(*given):
        read.extend(t.data_ptr() for t in given[10])  # saved
        return run(*given)

    monkeypatch.setattr(layer_cuda, "backward", backward)

    def packed(t):
        size, step = t.numel() * t.itemsize, t.itemsize
        memory = torch.empty(size + step, dtype=torch.uint8)
        memory[step:] = t.contiguous().flatten().view(torch.uint8)
        return memory, t.dtype, t.shape

    def unpacked(saved):
        memory, dtype, shape = saved
        return memory[dtype.itemsize :].view(dtype).view(shape)

    with torch.autograd.graph.saved_tensors_hooks(packed, unpacked):
        y, _ = run_function("layer_cuda", call, None, None, inputs)
    torch.autograd.grad(y.sum(), [inputs[0], layer.weight_h])
    assert len(read) == 2 and not any(address % 16 for address in read)


def of_operator(cell, dtype=torch.float32, keep=True):
    layer, call, inputs = arguments(cell)
    state = torch.zeros(len(cell.states), 3, 11)
    vectors = [v.detach() for v in layer.vectors().values()]
    packed = torch.stack(vectors) if vectors else state.new_empty(0, 11)
    described = (cell.name, call.constants, dtype)
    return (*described, *inputs[:4], state, packed, None, None, keep)


@pytest.fixture
def routed(monkeypatch):
    """Makes the operator use the GPU's implementation on CPU tensors."""
    route = operator.choose(operator.get_cell("lstm"), torch.float32, torch.device("cpu"))
    monkeypatch.setattr(operator, "choose", lambda *a, **k: route._replace(name="layer_cuda"))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(representative_cell, routed, dtype, keep):
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    given = of_operator(representative_cell, dtype, keep)
    torch.library.opcheck(layer_operator, given, test_utils=checks)


def test_the_operator_inside_autocast(representative_cell, routed):
    given = of_operator(representative_cell)
    expected = layer_operator(*given)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer_operator(*given)[0], expected)


def test_copies_to_another_dtype_are_refused():
    with pytest.raises(ValueError, match="float16"):
        made = Sketch(0)
        made.copy(made.array(torch.float16, (3,)))
