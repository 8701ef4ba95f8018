"""The compiled recurrence gives the reference's outputs, states and every gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tolerances import assert_close
from tsm.export.contract.samples import B, H, I, Sample, T, make_layer, make_sample
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.operator import backward_operator, layer_operator

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def gradients(layer: Recurrent, sample: Sample) -> dict[str, Tensor]:
    """Outputs, last states, and the gradients of a random weighted sum of them with respect to every input and
    parameter."""
    x = sample.x.clone().requires_grad_()
    state = {name: value.clone().requires_grad_() for name, value in sample.state.items()}
    layer.zero_grad()
    y, last = Sample(x, state, sample.dt, sample.lengths).run(layer)
    generator = torch.Generator().manual_seed(5)
    total = torch.zeros((), dtype=torch.float64)
    for tensor in (y, *last.values()):
        weight = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        total = total + (weight * tensor.double()).sum()
    total.backward()
    found: dict[str, Any] = {"y": y, "grad x": x.grad}
    found |= {f"last {name}": value for name, value in last.items()}
    found |= {f"grad state {name}": value.grad for name, value in state.items()}
    found |= {f"grad {name}": parameter.grad for name, parameter in layer.named_parameters()}
    missing = [name for name, value in found.items() if value is None]
    assert not missing, f"no gradient reached {missing}"
    return found


@pytest.mark.parametrize("with_lengths", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_equals_reference(compiled_cell, dtype, with_lengths):
    """Runs with random dt if the cell takes it (test_odd_sizes runs every cell without dt)."""
    reference = make_layer(compiled_cell, DTYPES[dtype])
    compiled = make_layer(compiled_cell, DTYPES[dtype], backend="fused")
    compiled.load_state_dict(reference.state_dict())
    sample = make_sample(reference, with_lengths=with_lengths)
    expected, found = gradients(reference, sample), gradients(compiled, sample)
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == expected[name].dtype, name
        assert_close(found[name], expected[name], "fused", dtype, name)


def test_reference_compiles_too(representative_cell):
    layer = make_layer(representative_cell, torch.float32)
    whole = make_sample(layer)
    steps = 3  # few, because the loop is unrolled into the graph
    dt = None if whole.dt is None else whole.dt[:, :steps]
    sample = Sample(whole.x[:, :steps], whole.state, dt, whole.lengths.clamp(max=steps))
    torch._dynamo.reset()
    y, _ = sample.run(torch.compile(layer, backend="aot_eager", fullgraph=True))
    assert_close(y, sample.run(layer)[0], "fused", "float32", "y")


@pytest.mark.parametrize(
    "batch, steps, hidden", [(1, 1, 1), (3, 2, 7), (4, 5, 33), (9, 3, 16), (0, 4, 5), (2, 0, 5)]
)
def test_odd_sizes(compiled_cell, batch, steps, hidden):
    layers = [
        Recurrent(compiled_cell.name, I, hidden, backend=b).double() for b in ("reference", "fused")
    ]
    layers[1].load_state_dict(layers[0].state_dict())
    x = torch.randn(batch, steps, I, dtype=torch.float64)
    (expected_y, expected), (found_y, found) = (layer(x) for layer in layers)
    assert_close(found_y, expected_y, "fused", "float64", "y")
    for name in expected:
        assert_close(found[name], expected[name], "fused", "float64", name)


def operator_arguments(cell, dtype=torch.float64, requires_grad=True):
    """Of `tsm::layer`."""
    layer = make_layer(cell, dtype, backend="fused")
    sample = make_sample(layer)
    G = len(cell.gates)
    leaf = lambda *shape: torch.randn(*shape, dtype=dtype).requires_grad_(requires_grad)  # noqa: E731
    vectors = torch.rand(len(cell.vectors), H, dtype=layer.state_dtype) * 0.8 + 0.1
    return (
        cell.name,
        list(cell.constants.values()),
        dtype,
        leaf(B, T, I),
        leaf(G * H, I),
        leaf(G * H),
        leaf(G * H if cell.gates_of("h") else 0, H),
        torch.stack([sample.state[s] for s in cell.states]).requires_grad_(requires_grad),
        vectors.requires_grad_(requires_grad),
        sample.dt,
        sample.lengths,
        True,
    )


def test_gradcheck_of_the_operator(compiled_cell):
    arguments = operator_arguments(compiled_cell)

    def run(*tensors):
        return layer_operator(*arguments[:3], *tensors, *arguments[9:])[:2]

    assert torch.autograd.gradcheck(run, arguments[3:9], fast_mode=True)


def test_opcheck(representative_cell):
    arguments = operator_arguments(representative_cell)
    torch.library.opcheck(layer_operator, arguments)
    y, last, *saved = (t.detach() for t in layer_operator(*arguments))
    inputs = [t.detach() for t in arguments[3:9]]
    torch.library.opcheck(
        backward_operator, (*arguments[:3], *inputs, *arguments[9:11], y, saved, y, last)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_operator_is_the_layer(representative_cell, dtype):
    """Traced and eager calls run the same implementation: outputs and gradients have the same bits.

    This also holds in bfloat16, except for the gradients of a cell's vectors, which autograd rounds once more.
    """
    layer = make_layer(representative_cell, dtype, backend="fused")
    sample = make_sample(layer)
    eager = gradients(layer, sample)
    torch._dynamo.reset()
    compiled = copy.deepcopy(layer)
    compiled.compile(backend="aot_eager", fullgraph=True)
    traced = gradients(compiled, sample)
    assert traced.keys() == eager.keys()
    for name, value in eager.items():
        assert torch.equal(traced[name], value), name


def test_export_and_compile_accept_the_operator(representative_cell):
    layer = make_layer(representative_cell, torch.float32, backend="fused")
    sample = make_sample(layer, with_dt=False, with_lengths=False)
    expected, _ = layer(sample.x)
    steps = torch.export.Dim("steps", min=2, max=64)
    program = torch.export.export(layer, (sample.x,), dynamic_shapes=({1: steps},))
    longer = torch.randn(B, 2 * T, I)
    assert_close(program.module()(longer)[0], layer(longer)[0], "fused", "float32", "y")
    torch._dynamo.reset()  # each cell is a new graph, and torch stops compiling after a few
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    y, _ = compiled(sample.x)
    y.sum().backward()
    assert_close(y, expected, "fused", "float32", "y")
    found = layer.weight_h.grad.clone()
    layer.zero_grad()
    layer(sample.x)[0].sum().backward()
    assert_close(found, layer.weight_h.grad, "fused", "float32", "weight_h.grad")


def test_autocast(compiled_cell):
    layer = make_layer(compiled_cell, torch.float32, backend="fused")
    reference = make_layer(compiled_cell, torch.float32)
    reference.load_state_dict(layer.state_dict())
    sample = make_sample(layer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = gradients(layer, sample), gradients(reference, sample)
    assert found["y"].dtype == torch.bfloat16
    assert found["grad weight_x"].dtype == torch.float32
    for name in expected:
        assert_close(found[name], expected[name], "fused", "bfloat16", name)


def test_backward_of_the_operator_inside_autocast(compiled_cell):
    """Gradients have the layer's dtype even inside autocast."""
    arguments = operator_arguments(compiled_cell, torch.float32)
    found = []
    for inside in (False, True):
        y = layer_operator(*arguments)[0]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=inside):
            found.append(torch.autograd.grad(y.sum(), arguments[4:7]))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_other_kinds_of_differentiation_are_refused(compiled_cell, dtype):
    layer = make_layer(compiled_cell, dtype, backend="fused")
    x = make_sample(layer).x
    message = 'backend="reference"'
    with pytest.raises(NotImplementedError, match=message):
        torch.func.jvp(lambda x: layer(x)[0], (x,), (torch.ones_like(x),))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match=message):
        layer(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(layer(leaf)[0].sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match=message):
        first.sum().backward()
    frozen = make_layer(compiled_cell, dtype, backend="fused")
    frozen.requires_grad_(False)
    (first,) = torch.autograd.grad(frozen(leaf)[0].sum(), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match=message):
        first.square().sum().backward()
    for transform in (
        torch.func.grad(lambda x: layer(x)[0].sum()),
        torch.func.jacrev(lambda x: layer(x)[0]),
    ):
        with pytest.raises(NotImplementedError, match=message):
            transform(x)
    with pytest.raises(NotImplementedError, match=message):
        torch.func.vmap(lambda x: layer(x)[0])(x[None])
    if compiled_cell.takes_dt:
        dt = torch.ones(B, T, dtype=dtype, requires_grad=True)
        with pytest.raises(NotImplementedError, match=message):
            layer(x, dt=dt)
        dt = torch.ones(B, T, dtype=dtype)
        with pytest.raises(NotImplementedError, match=message):
            torch.func.jvp(lambda dt: frozen(x, dt=dt)[0], (dt,), (dt,))


def test_the_operator_checks_what_it_is_given(compiled_cell):
    arguments = list(operator_arguments(compiled_cell, requires_grad=False))
    for position, spoil in [
        (3, lambda t: t[..., :-1]),
        (3, lambda t: t[0]),
        (4, lambda t: t[:-1]),
        (5, lambda t: t[:-1]),
        (6, lambda t: t[:-1]),
        (7, lambda t: t.float()),
        (7, lambda t: t[:, :-1]),
        (8, lambda t: t[:, :-1]),
        (10, lambda t: t.int()),
        (10, lambda t: t + T),
    ]:
        spoilt = list(arguments)
        spoilt[position] = spoil(arguments[position])
        if spoilt[position].numel() == arguments[position].numel() == 0:
            continue  # a cell with no vectors
        with pytest.raises(ValueError):
            layer_operator(*spoilt)


def test_an_operator_without_elements(compiled_cell):
    """An exported program with dynamic sizes may be called with no rows or no steps."""
    for shape in ((0, T), (B, 0)):
        arguments = list(operator_arguments(compiled_cell))
        arguments[3] = torch.randn(*shape, I, dtype=torch.float64, requires_grad=True)
        arguments[7] = torch.rand(len(compiled_cell.states), shape[0], H, dtype=torch.float64)
        arguments[7].requires_grad_()
        arguments[9:11] = None, None
        y, last, *_ = layer_operator(*arguments)
        assert y.shape == (*shape, H) and torch.equal(last, arguments[7])
        (gradient,) = torch.autograd.grad(last.sum() + y.sum(), arguments[7])
        assert torch.equal(gradient, torch.ones_like(gradient))
