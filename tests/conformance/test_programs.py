"""A cell is one program: numpy, torch, the recorded tape and its derivative agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from samples import make_layer, make_sample, run_numpy
from tolerances import assert_close
from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.derive import activate, differentiate, hoist
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.cells.tape.torch_ops import TorchOps


@pytest.mark.parametrize("with_lengths", [False, True])
def test_numpy_equals_torch(cell, with_lengths):
    layer = make_layer(cell, torch.float64)
    sample = make_sample(layer, with_lengths=with_lengths)
    y, last = sample.run(layer)
    expected_y, expected_last = run_numpy(layer, sample)
    assert_close(y, expected_y, "numpy", "float64", "y")
    for name, value in last.items():
        assert_close(value, expected_last[name], "numpy", "float64", name)


def tape_inputs(cell, count=64):
    """Random values for every input of a cell's tape; ages and vectors are positive, as in practice."""
    rng = np.random.default_rng(3)
    values = {f"z.{g}": rng.normal(size=count) * 3 for g in cell.gates}
    values |= {f"s.{s}": rng.uniform(0, 3, size=count) for s in cell.states}
    values |= {f"v.{v}": rng.uniform(0.05, 0.95, size=count) for v in cell.vectors}
    values |= {f"k.{k}": np.full(count, value) for k, value in cell.constants.items()}
    values["dt"] = rng.uniform(0.5, 2, size=count) if cell.takes_dt else np.ones(count)
    return values


def direct(cell, ops, values):
    from types import SimpleNamespace

    spaces = [
        SimpleNamespace(**{n: values[f"{prefix}.{n}"] for n in names})
        for prefix, names in (
            ("z", cell.gates),
            ("s", cell.states),
            ("v", cell.vectors),
            ("k", cell.constants),
        )
    ]
    return cell.step(ops, *spaces, values["dt"])


def test_tape_equals_the_program(elementwise_cell):
    values = tape_inputs(elementwise_cell)
    expected = direct(elementwise_cell, NumpyOps, values)
    found = elementwise_cell.tape().run(NumpyOps, values)
    assert list(found) == list(elementwise_cell.states)
    for name in found:
        assert_close(found[name], expected[name], "tape", "float64", name)


def test_differentiated_tape_equals_autograd(elementwise_cell):
    cell, values = elementwise_cell, tape_inputs(elementwise_cell)
    wrt = [n for n in values if not n.startswith("k.") and n != "dt"]
    rng = np.random.default_rng(4)
    incoming = {f"d.{s}": rng.normal(size=64) for s in cell.states}
    found = differentiate(cell.tape(), wrt).run(NumpyOps, {**values, **incoming})

    tensors = {n: torch.tensor(v, requires_grad=n in wrt) for n, v in values.items()}
    outputs = direct(cell, TorchOps, tensors)
    sum((outputs[s] * torch.tensor(incoming[f"d.{s}"])).sum() for s in cell.states).backward()
    for name in wrt:
        expected = tensors[name].grad
        expected = np.zeros(64) if expected is None else expected.numpy()
        assert_close(np.broadcast_to(found[f"d.{name}"], 64), expected, "tape", "float64", name)


def test_hoisted_tape_equals_the_whole(elementwise_cell):
    cell, values = elementwise_cell, tape_inputs(elementwise_cell)
    prepare, step = hoist(cell.tape())
    prepared = prepare.run(NumpyOps, values)
    assert not [i for i in step.inputs() if i.startswith("v.")], "the step still reads a vector"
    found = step.run(NumpyOps, {**values, **{f"q.{n}": v for n, v in prepared.items()}})
    expected = cell.tape().run(NumpyOps, values)
    for name in expected:
        assert_close(found[name], expected[name], "tape", "float64", name)


def test_activated_tapes_equal_the_whole(elementwise_cell):
    cell, values = elementwise_cell, tape_inputs(elementwise_cell)
    wrt = [n for n in values if not n.startswith("k.") and n != "dt"]
    whole = cell.tape(), differentiate(cell.tape(), wrt)
    gates, *rest = activate(*whole, cell.gates)
    values |= {f"d.{s}": np.random.default_rng(4).normal(size=64) for s in cell.states}
    given = {n: v for n, v in values.items() if not n.startswith("z.")}
    given |= {f"a.{g}": v for g, v in gates.run(NumpyOps, values).items()}
    for part, tape in zip(rest, whole, strict=True):
        found, expected = part.run(NumpyOps, given), tape.run(NumpyOps, values)
        for name in expected:
            assert np.array_equal(found[name], expected[name]), name


@pytest.mark.parametrize("name", ["lstm", "plstm"])
def test_backward_reads_what_the_gates_became(name):
    cell = get_cell(name)
    backward = differentiate(cell.tape(), [f"z.{g}" for g in cell.gates])
    gates, step, backward = activate(cell.tape(), backward, cell.gates)
    ends = [gates.nodes[ref].op for ref in gates.outputs.values()]
    assert sorted(ends) == ["sigmoid"] * (len(cell.gates) - 1) + ["tanh"]
    assert not [i for i in step.inputs() | backward.inputs() if i.startswith("z.")]


def test_gradcheck_of_the_reference(cell):
    layer = make_layer(cell, torch.float64)
    sample = make_sample(layer)
    steps = 4
    names = [name for name, _ in layer.named_parameters()]
    tensors = [
        sample.x[:, :steps].clone().requires_grad_(),
        *(value.clone().requires_grad_() for value in sample.state.values()),
        *(p.detach().clone().requires_grad_() for p in layer.parameters()),
    ]

    def run(x, *rest):
        state = dict(zip(sample.state, rest, strict=False))
        parameters = dict(zip(names, rest[len(sample.state) :], strict=True))
        dt = None if sample.dt is None else sample.dt[:, :steps]
        y, last = torch.func.functional_call(
            layer, parameters, (x, state), {"dt": dt, "lengths": sample.lengths.clamp(max=steps)}
        )
        return y, *last.values()

    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)
