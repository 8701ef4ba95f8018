"""Extreme inputs: saturated gates stay finite, forward and backward; h stays bounded; NaN is never hidden."""

from __future__ import annotations

import torch
from torch import Tensor

from ...plugin.cells import Cell
from ...plugin.cells.base import Space
from ...plugin.cells.tape.torch_ops import TorchOps
from ...plugin.layers import Recurrent
from ...plugin.layers.checks import LONGEST_DT
from .samples import B, I, T, backends, make_layer, make_sample
from .tolerances import Violation

LOW = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
EXTREMES = torch.tensor([0.0, 1e-4, 1.0, 7.4, 7.6, 12.0, 89.0, 1e3, 1e4])
EXTREMES = torch.cat([-EXTREMES.flip(0), EXTREMES])
FEW = torch.tensor([-1e4, -3.0, 0.0, 3.0, 1e4])
MOST_ROWS = 20_000
"""Of combinations of gates; from a cell with more, as many are drawn."""
STEPS = 4096
"""Of an input that could make h grow."""


def extremes(cell: type[Cell]) -> str:
    """Every gate at |z| up to 1e4, for one step and over time, in float32, bfloat16 and float16: values and
    gradients are finite. In float32 also with the shortest and the longest dt, for one step."""
    rows = 0
    if cell.elementwise and cell.takes_dt:
        for dt in (max(cell.shortest_dt(cell.constants), 1 / LONGEST_DT), LONGEST_DT):
            rows += sum(_check_step(cell, gate, "float32", dt) for gate in cell.gates)
    for name, dtype in LOW.items():
        if cell.elementwise:
            rows += sum(_check_step(cell, gate, name, 1.0) for gate in cell.gates)
        for backend in backends(cell, dtype):
            _check_over_time(cell, name, backend)
    return f"finite in {rows:,} combinations and over {T} steps, gradients too"


def _check_step(cell: type[Cell], gate: str, dtype: str, dt: float) -> int:
    """Runs the program on z of low precision, in float32 as layers do, with one gate at each extreme."""
    grids = _grids(cell, gate).to(LOW[dtype])

    def leaf(x: Tensor) -> Tensor:
        return x.clone().requires_grad_()

    z = {g: leaf(grids[:, i]) for i, g in enumerate(cell.gates)}
    s = {name: leaf(torch.full((len(grids),), 0.7)) for name in cell.states}
    v = {name: leaf(torch.full((len(grids),), 0.4)) for name in cell.vectors}
    exact = {g: x.float() for g, x in z.items()}
    out = cell.step(TorchOps, Space(**exact), Space(**s), Space(**v), Space(**cell.constants), dt)
    torch.stack([x.expand(len(grids)).sum() for x in out.values()]).sum().backward()
    reached = {f"the new {name}": value.expand(len(grids)) for name, value in out.items()}
    for name, x in {**z, **s, **v}.items():
        if x.grad is not None:
            reached[f"the gradient of {name}"] = x.grad
    for what, value in reached.items():
        bad = (~torch.isfinite(value)).nonzero().flatten()
        if len(bad):
            at = dict(zip(cell.gates, grids[bad[0]].tolist(), strict=True))
            time = f" and dt = {dt:g}" if cell.takes_dt else ""
            raise Violation(f"{what} is {value[bad[0]].item():g} in {dtype} with z = {at}{time}")
    return len(grids)


def _grids(cell: type[Cell], gate: str) -> Tensor:
    """Rows of z: this gate at each extreme, combined with a few values of each of the others."""
    values = [EXTREMES if g == gate else FEW for g in cell.gates]
    if len(EXTREMES) * len(FEW) ** (len(values) - 1) > MOST_ROWS:
        return torch.stack([v[torch.randint(len(v), (MOST_ROWS,))] for v in values], 1)
    return torch.cartesian_prod(*values).reshape(-1, len(values))


def _check_over_time(cell: type[Cell], dtype: str, backend: str) -> None:
    layer = make_layer(cell, torch.float32, backend)
    with torch.no_grad():
        layer.bias.copy_(EXTREMES[torch.randint(len(EXTREMES), layer.bias.shape)])
    layer = layer.to(LOW[dtype])
    sample = make_sample(layer)
    x = (sample.x * 1e3).requires_grad_()
    y, last = layer(x, sample.state, dt=sample.dt)
    torch.stack([y.float().sum(), *(value.sum() for value in last.values())]).sum().backward()
    where = f"in {dtype} over {T} steps ({backend})"
    for name, value in {"y": y, **last}.items():
        if not torch.isfinite(value).all():
            raise Violation(f"{name} is not finite {where}")
    largest = torch.finfo(LOW[dtype]).max
    exact = _exact_gradients(layer)
    for name, parameter in [("x", x), *layer.named_parameters()]:
        if name not in exact:
            raise Violation(f"{name.removesuffix('_raw')} is declared but not read")
        fits = exact[name].abs() < largest / 2  # not every exact gradient fits in float16
        assert parameter.grad is not None
        if not (torch.isfinite(parameter.grad[fits]).all() and fits.any()):
            raise Violation(f"the gradient of {name} is not finite {where}")


def _exact_gradients(layer: Recurrent) -> dict[str, Tensor]:
    """The same in float64."""
    exact = make_layer(layer.cell, torch.float64)
    exact.load_state_dict(layer.state_dict())
    sample = make_sample(layer)
    x = (sample.x * 1e3).double().requires_grad_()
    dt = None if sample.dt is None else sample.dt.double()
    y, last = exact(x, {name: value.double() for name, value in sample.state.items()}, dt)
    torch.stack([y.sum(), *(value.sum() for value in last.values())]).sum().backward()
    gradients = {"x": x.grad, **{name: p.grad for name, p in exact.named_parameters()}}
    return {name: value for name, value in gradients.items() if value is not None}


def nan(cell: type[Cell]) -> str:
    """A NaN in an input or a parameter reaches the output, and stays in its row."""
    return "; ".join(_check_nan(cell, backend) for backend in backends(cell, torch.float32))


def _check_nan(cell: type[Cell], backend: str) -> str:
    layer = make_layer(cell, torch.float32, backend)
    x = torch.randn(B, T, I)
    x[1, 3, 0] = torch.nan
    y, _ = layer(x)
    if not torch.isnan(y[1, 3:]).all():
        raise Violation(f"a NaN in x of step 3 does not reach y of every later step ({backend})")
    if not torch.isfinite(y[0]).all():
        raise Violation(f"a NaN in x of one row reaches another row ({backend})")
    x[1, 3, 0] = 0
    if not torch.isfinite(layer(x)[0]).all():
        raise Violation(f"y is not finite although x is ({backend})")
    places = 0
    for name, parameter in layer.named_parameters():
        before = parameter.detach().clone()
        for place in range(0, parameter.numel(), max(1, parameter.numel() // 7)):
            with torch.no_grad():
                parameter.view(-1)[place] = torch.nan
                y, last = layer(x)
                parameter.copy_(before)
            if not any(torch.isnan(value).any() for value in (y[:, -1], *last.values())):
                raise Violation(f"a NaN in element {place} of {name} vanished ({backend})")
            places += 1
    return f"from x and {places} places of parameters ({backend})"


def bounded(cell: type[Cell]) -> str:
    """With x of 3, 100 and 1e4, random or always the same, |h| stays within the larger of 1 and |W x + b|, or
    stops growing within STEPS steps: in each doubling of the time it grows less. A dt is long, so that a slow
    memory reaches its bound."""
    dt = max(1e3, cell.shortest_dt(cell.constants)) if cell.takes_dt else None
    layer = make_layer(cell, torch.float32, backends(cell, torch.float32)[-1])
    random = torch.randn(B, STEPS, I)
    drives = torch.cat([random, random[:, :1].expand(B, STEPS, I)])
    largest = 0.0
    for size in (3.0, 100.0, 1e4):
        x = size * drives
        with torch.no_grad():
            y = layer(x, dt=dt)[0].abs().amax(2)
            limit = (x @ layer.matrix("weight_x").T + layer.effective_bias()).abs().amax((1, 2))
        peaks = torch.stack([y[:, : STEPS // part].amax(1) for part in (8, 4, 2, 1)])
        early, late = peaks[-2:]
        first, second, third = peaks.diff(dim=0)
        steady = (third >= 0.9 * second) & (second >= 0.9 * first) & (first > 0.01 * late)
        bad = ~torch.isfinite(late) | (late > limit.clamp(min=1)) & (steady | (late > 1.5 * early))
        if bad.any():
            raise Violation(
                f"|h| grows from {early[bad][0]:g} to {late[bad][0]:g} between {STEPS // 2} and {STEPS} steps "
                f"of x = {size:g}; a cell whose h may grow declares bounded = False"
            )
        largest = max(largest, float(late.max()))
    return f"|h| <= {largest:.3g} over {STEPS} steps of x up to 1e4"
