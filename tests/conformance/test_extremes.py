"""Extreme inputs: saturated gates stay finite forward and backward, and NaN is never hidden."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from samples import B, H, I, T, backends, make_layer, make_sample
from tsm.plugin.cells.tape.torch_ops import TorchOps

LOW = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
EXTREMES = torch.tensor([0.0, 1e-4, 1.0, 7.4, 7.6, 12.0, 89.0, 1e3, 1e4])
EXTREMES = torch.cat([-EXTREMES.flip(0), EXTREMES])


@pytest.mark.parametrize("dtype", LOW)
def test_step_in_low_precision(bounded_elementwise_cell, dtype):
    """Runs the program on z of low precision, in float32 as layers do, with each gate at each extreme."""
    cell = bounded_elementwise_cell
    few = torch.tensor([-1e4, -3.0, 0.0, 3.0, 1e4])
    for gate in cell.gates:
        grids = torch.cartesian_prod(*(EXTREMES if g == gate else few for g in cell.gates))
        grids = grids.reshape(-1, len(cell.gates)).to(LOW[dtype])
        leaf = lambda x: x.clone().requires_grad_()  # noqa: E731
        z = {g: leaf(grids[:, i]) for i, g in enumerate(cell.gates)}
        exact = {g: x.float() for g, x in z.items()}
        some = torch.ones(len(grids))
        s = {name: leaf(0.7 * some) for name in cell.states}
        v = {name: leaf(0.4 * some) for name in cell.vectors}
        out = cell.step(
            TorchOps,
            *(SimpleNamespace(**names) for names in (exact, s, v, cell.constants)),
            1.0,
        )
        assert all(torch.isfinite(x).all() for x in out.values()), gate
        sum(x.sum() for x in out.values()).backward()
        for name, x in {**z, **s, **v}.items():
            assert x.grad is None or torch.isfinite(x.grad).all(), (
                f"gradient of {name}, gate {gate}"
            )


@pytest.mark.parametrize("dtype", LOW)
def test_layer_over_time(bounded_cell, dtype):
    for backend in backends(bounded_cell, LOW[dtype]):
        check_layer_over_time(bounded_cell, dtype, backend)


def check_layer_over_time(bounded_cell, dtype, backend):
    layer = make_layer(bounded_cell, torch.float32, backend)
    with torch.no_grad():
        layer.bias.copy_(EXTREMES[torch.randint(len(EXTREMES), layer.bias.shape)])
    layer = layer.to(LOW[dtype])
    sample = make_sample(layer)
    x = (sample.x * 1e3).requires_grad_()
    y, last = layer(x, sample.state, dt=sample.dt)
    (y.float().sum() + sum(s.sum() for s in last.values())).backward()
    for name, value in {"y": y, **last}.items():
        assert torch.isfinite(value).all(), name
    largest = torch.finfo(LOW[dtype]).max
    exact = exact_gradients(layer, sample)
    for name, parameter in [("x", x), *layer.named_parameters()]:
        fits = exact[name].abs() < largest / 2  # not every exact gradient fits in float16
        assert torch.isfinite(parameter.grad[fits]).all() and fits.any(), f"gradient of {name}"


def exact_gradients(layer, sample):
    """The same in float64."""
    exact = make_layer(layer.cell, torch.float64)
    exact.load_state_dict(layer.state_dict())
    x = (sample.x * 1e3).double().requires_grad_()
    y, last = exact(x, {name: value.double() for name, value in sample.state.items()}, sample.dt)
    (y.sum() + sum(s.sum() for s in last.values())).backward()
    return {"x": x.grad, **{name: p.grad for name, p in exact.named_parameters()}}


def test_nan_reaches_the_output(cell):
    for backend in backends(cell, torch.float32):
        check_nan_reaches_the_output(cell, backend)


def check_nan_reaches_the_output(cell, backend):
    layer = make_layer(cell, torch.float32, backend)
    x = torch.randn(B, T, I)
    clean = [p.detach().clone() for p in layer.parameters()]
    x[1, 3, 0] = torch.nan
    y, _ = layer(x)
    assert torch.isnan(y[1, 3:]).all() and torch.isfinite(y[0]).all()
    x[1, 3, 0] = 0
    assert torch.isfinite(layer(x)[0]).all()
    for parameter, before in zip(layer.parameters(), clean, strict=True):
        for place in range(0, parameter.numel(), max(1, parameter.numel() // 7)):
            with torch.no_grad():
                parameter.view(-1)[place] = torch.nan
            y, last = layer(x)
            reached = any(
                torch.isnan(v[:, -1] if v.dim() == 3 else v).any() for v in (y, *last.values())
            )
            with torch.no_grad():
                parameter.copy_(before)
            assert reached, f"NaN in element {place} of a {tuple(before.shape)} parameter vanished"


def test_bounded_cells_keep_h_bounded(bounded_cell):
    layer = make_layer(bounded_cell, torch.float32)
    y, _ = layer(1e4 * torch.randn(B, 400, I))
    early, late = y[:, :200].abs().max(), y[:, 200:].abs().max()
    assert y.shape == (B, 400, H) and late <= 1.5 * early
