"""The formula of a cell: numpy, torch, the recorded tape and the derivatives agree, in any chunks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError

from ...plugin.cells import Cell
from ...plugin.cells.tape.derive import activate, differentiate, hoist
from ...plugin.cells.tape.ops import NumpyOps
from ...plugin.cells.tape.torch_ops import TorchOps
from .samples import Array, B, Sample, T, make_layer, make_sample, run_numpy
from .tolerances import Violation, check_close

COUNT = 64
"""Random inputs of a tape."""
SPLITS = 8
"""Random splits of a sequence into chunks."""


def formula(cell: type[Cell]) -> str:
    """The formula in numpy, step by step, is the layer in torch; after the end of a row y is 0 and its state
    does not change."""
    layer = make_layer(cell, torch.float64)
    worst = 0.0
    for with_lengths in (False, True):
        sample = make_sample(layer, with_lengths=with_lengths)
        y, last = sample.run(layer)
        expected_y, expected = run_numpy(layer, sample)
        worst = max(worst, check_close(y, expected_y, "numpy", "float64", "y"))
        for name, value in last.items():
            worst = max(worst, check_close(value, expected[name], "numpy", "float64", name))
    return f"numpy and torch differ by {worst:.2g}"


def gradient(cell: type[Cell]) -> str:
    """The gradients of all inputs and parameters are those of finite differences."""
    layer = make_layer(cell, torch.float64)
    sample = make_sample(layer)
    steps = 4
    names = [name for name, _ in layer.named_parameters()]
    tensors = [
        sample.x[:, :steps].clone().requires_grad_(),
        *(value.clone().requires_grad_() for value in sample.state.values()),
        *(p.detach().clone().requires_grad_() for p in layer.parameters()),
    ]
    dt = None if sample.dt is None else sample.dt[:, :steps]
    lengths = None if sample.lengths is None else sample.lengths.clamp(max=steps)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        state = dict(zip(sample.state, rest, strict=False))
        parameters = dict(zip(names, rest[len(sample.state) :], strict=True))
        y, last = torch.func.functional_call(
            layer, parameters, (x, state), {"dt": dt, "lengths": lengths}
        )
        return y, *last.values()

    try:
        torch.autograd.gradcheck(run, tensors, fast_mode=True)
    except GradcheckError as error:
        inputs = ", ".join(["x", *sample.state, *names])
        raise Violation(
            f"{error} (inputs: {inputs}; outputs: y, {', '.join(cell.states)})"
        ) from error
    return f"{len(tensors)} inputs and parameters agree with finite differences"


def tape(cell: type[Cell]) -> str:
    """The recorded program, its derivative, and its parts outside and inside the loop compute what the formula
    does."""
    values = _tape_inputs(cell)
    expected = _step(cell, NumpyOps, values)
    program = cell.tape()
    worst = _close(program.run(NumpyOps, values), expected)
    prepare, step = hoist(program)
    prepared = {f"q.{name}": value for name, value in prepare.run(NumpyOps, values).items()}
    worst = max(worst, _close(step.run(NumpyOps, {**values, **prepared}), expected))
    if vectors := [name for name in step.inputs() if name.startswith("v.")]:
        raise Violation(f"the part of the program inside the loop still reads {', '.join(vectors)}")

    wrt = [name for name in values if not name.startswith("k.") and name != "dt"]
    rng = np.random.default_rng(4)
    values |= {f"d.{state}": rng.normal(size=COUNT) for state in cell.states}
    backward = differentiate(program, wrt)
    worst = max(worst, _close(backward.run(NumpyOps, values), _autograd(cell, values, wrt)))
    gates, *parts = activate(program, backward, cell.gates)
    saved = {f"a.{gate}": value for gate, value in gates.run(NumpyOps, values).items()}
    without_z = {n: v for n, v in values.items() if not n.startswith("z.")} | saved
    for part, whole in zip(parts, (program, backward), strict=True):
        want = whole.run(NumpyOps, values)
        for name, value in part.run(NumpyOps, without_z).items():
            if not np.array_equal(value, want[name]):
                raise Violation(
                    f"{name} from saved values of the gates differs from the whole program's"
                )
    return f"{len(program.nodes)} operations, {len(backward.nodes)} of the derivative; off by {worst:.2g}"


def _tape_inputs(cell: type[Cell]) -> dict[str, Array]:
    """Random values for every input of a cell's tape; ages and vectors are positive, as in practice."""
    rng = np.random.default_rng(3)
    values: dict[str, Array] = {f"z.{g}": rng.normal(size=COUNT) * 3 for g in cell.gates}
    values |= {f"s.{s}": rng.uniform(0, 3, size=COUNT) for s in cell.states}
    values |= {f"v.{v}": rng.uniform(0.05, 0.95, size=COUNT) for v in cell.vectors}
    values |= {f"k.{k}": np.full(COUNT, value) for k, value in cell.constants.items()}
    values["dt"] = rng.uniform(0.5, 2, size=COUNT) if cell.takes_dt else np.ones(COUNT)
    return values


def _step(cell: type[Cell], ops: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The cell's own `step` on the inputs of its tape."""
    spaces = [
        SimpleNamespace(**{name: values[f"{prefix}.{name}"] for name in names})
        for prefix, names in (
            ("z", cell.gates),
            ("s", cell.states),
            ("v", cell.vectors),
            ("k", cell.constants),
        )
    ]
    z, s, v, const = spaces
    return cell.step(ops, z, s, v, const, values["dt"])


def _autograd(cell: type[Cell], values: dict[str, Array], wrt: list[str]) -> dict[str, Array]:
    tensors = {n: torch.tensor(v, requires_grad=n in wrt) for n, v in values.items()}
    outputs = _step(cell, TorchOps, tensors)
    total = sum((outputs[s] * tensors[f"d.{s}"]).sum() for s in cell.states)
    assert isinstance(total, Tensor)
    total.backward()
    gradients = {name: tensors[name].grad for name in wrt}
    return {
        f"d.{name}": np.zeros(COUNT) if value is None else value.numpy()
        for name, value in gradients.items()
    }


def _close(values: dict[str, Array], expected: dict[str, Array]) -> float:
    """The largest difference of outputs of a tape, some of which may be single numbers."""
    if list(values) != list(expected):
        raise Violation(f"the program returns {list(values)}, expected {list(expected)}")
    return max(
        check_close(np.broadcast_to(values[name], COUNT), want, "tape", "float64", name)
        for name, want in expected.items()
    )


def chunks(cell: type[Cell]) -> str:
    """Any split of a sequence into chunks gives the outputs and states of one pass."""
    layer = make_layer(cell, torch.float64)
    sample = make_sample(layer)
    whole, last = sample.run(layer)
    rng = np.random.default_rng(6)
    worst = 0.0
    for count in range(SPLITS):
        cuts = sorted(rng.integers(0, T + 1, size=count).tolist())
        y, state = in_chunks(layer, sample, cuts)
        worst = max(worst, check_close(y, whole, "chunks", "float64", f"y, cut at {cuts}"))
        for name, value in state.items():
            what = f"{name}, cut at {cuts}"
            worst = max(worst, check_close(value, last[name], "chunks", "float64", what))
    return f"{SPLITS} splits differ by {worst:.2g}"


def in_chunks(
    run: Callable[..., tuple[Tensor, dict[str, Tensor]]], sample: Sample, cuts: list[int]
) -> tuple[Tensor, dict[str, Tensor]]:
    """A layer on the sample, cut into chunks at these steps."""
    state, outputs = sample.state, []
    for start, end in zip([0, *cuts], [*cuts, T], strict=True):
        dt = None if sample.dt is None else sample.dt[:, start:end]
        lengths = None if sample.lengths is None else (sample.lengths - start).clamp(0, end - start)
        y, state = run(sample.x[:, start:end], state, dt, lengths)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


def time_steps(cell: type[Cell]) -> str:
    """A cell that declares takes_dt depends on dt, whose default is 1; any other refuses it."""
    layer = make_layer(cell, torch.float64)
    x = make_sample(layer).x
    ones = torch.ones(B, x.shape[1], dtype=torch.float64)
    if not cell.takes_dt:
        try:
            layer(x, dt=ones)
        except ValueError:
            return "refused, as takes_dt is not declared"
        raise Violation("the layer accepts dt, although takes_dt is not declared")
    with torch.no_grad():
        (y, last), (same, _), (_, later) = layer(x), layer(x, dt=ones), layer(x, dt=2 * ones)
    if not torch.equal(y, same):
        raise Violation(f"without dt, y differs by {(y - same).abs().max():.1e} from y with dt = 1")
    change = max(float((later[name] - value).abs().max()) for name, value in last.items())
    if not change:
        raise Violation("takes_dt is declared, but a dt of 2 gives the states of a dt of 1")
    return f"a dt of 2 changes the states by up to {change:.1e}; without dt it is 1"
