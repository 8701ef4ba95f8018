"""Gradients of weights beside the recurrence of the next layer are those of an ordinary backward pass."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
import torch

import emulated_cuda
from tsm.plugin.layers import Recurrent, layer_cuda, operator, overlap
from tsm.plugin.layers.overlap import gradients_beside

B, T, I, H = 3, 5, 4, 11
CPU = torch.device("cpu")


class Stream:
    """Stands for a CUDA stream. All of them note what they are told in one list."""

    def __init__(self, name: str, notes: list) -> None:
        self.cuda_stream, self.name, self.notes = name, name, notes

    def wait_event(self, event) -> None:
        self.notes.append((self.name, "waits for event"))

    def wait_stream(self, other) -> None:
        self.notes.append((self.name, "waits for", other.name))


class Event:
    def record(self, stream) -> None:
        stream.notes.append((stream.name, "records"))


@pytest.fixture
def notes(monkeypatch) -> list:
    """What is launched where, with layers of the GPU that are emulated on the CPU."""
    found: list = []
    emulated_cuda.install(monkeypatch)
    route = operator.choose(operator.get_cell("lstm"), torch.float32, CPU)
    for module in ("over_time", "operator"):
        monkeypatch.setattr(
            f"tsm.plugin.layers.{module}.choose",
            lambda *a, **k: route._replace(name="layer_cuda"),
        )
    first, second = Stream("first", found), Stream("second", found)
    monkeypatch.setattr("tsm.plugin.layers.layer_cuda.current_stream", lambda device: "first")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: first)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(overlap, "_second_stream", lambda device: second)
    run = emulated_cuda.Launches.run

    def noted(launches, addresses, stream) -> None:
        found.append((stream, "runs"))
        run(launches, addresses, stream)

    add = overlap._add

    def noted_add(pairs) -> None:
        found.append(("first", "adds", len(pairs)))
        add(pairs)

    monkeypatch.setattr(emulated_cuda.Launches, "run", noted)
    monkeypatch.setattr(overlap, "_add", noted_add)
    for described in (layer_cuda._forward, layer_cuda._backward):
        described.cache_clear()
    return found


@pytest.fixture
def block(monkeypatch):
    """Opens a block as on a GPU, where the weights seem to be."""
    monkeypatch.setattr(overlap, "turned_on", lambda: True)
    takes = overlap.Overlap.takes

    def taken(block, weight) -> bool:
        block.device = weight.device
        return takes(block, weight)

    monkeypatch.setattr(overlap.Overlap, "takes", taken)
    return lambda: gradients_beside(torch.device("cuda", 0))


def jobs(notes) -> int:
    """How many ran beside something."""
    return notes.count(("second", "runs"))


def stack(cell: str = "lstm", layers: int = 3, **settings) -> torch.nn.ModuleList:
    sizes = [I] + [H] * layers
    return torch.nn.ModuleList(Recurrent(cell, *pair, **settings) for pair in pairwise(sizes))


def loss_of(layers, y=None) -> torch.Tensor:
    y = torch.linspace(-1, 1, B * T * I).view(B, T, I) if y is None else y
    for layer in layers:
        y, _ = layer(y)
    return y.square().sum()


def gradients(layers) -> dict[str, torch.Tensor]:
    found = {n: p.grad for n, p in layers.named_parameters() if p.grad is not None}
    layers.zero_grad()
    return found


def same(found, expected) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_same_bits(notes, block, compiled_cell, layers):
    model = stack(compiled_cell.name, layers)
    loss_of(model).backward()
    expected = gradients(model)
    assert len(expected) == len(list(model.parameters()))
    with block():
        loss_of(model).backward()
    assert same(gradients(model), expected)
    computed = model[0]._read_partly  # as of gru: its weights get rows of zeros
    assert jobs(notes) == (0 if computed else layers - 1)


def test_gradients_are_added_to_those_that_are_there(notes, block):
    model = stack()
    for _ in range(2):
        loss_of(model).backward()
    expected = gradients(model)
    for _ in range(2):
        with block():
            loss_of(model).backward()
    assert same(gradients(model), expected)
    with block():  # two backward passes in one block, over the same weights
        (loss_of(model) + loss_of(model)).backward()
    found = gradients(model)
    for name in expected:
        assert torch.allclose(found[name], expected[name], rtol=1e-5, atol=1e-6), name


def test_a_job_runs_beside_the_next_recurrence(notes, block):
    model = stack()
    with block():
        loss = loss_of(model)
        notes.clear()
        loss.backward()
    assert notes == [
        ("first", "records"),  # layer 3
        ("first", "runs"),
        ("first", "records"),  # layer 2, beside it the weights of layer 3
        ("first", "runs"),
        ("second", "waits for event"),
        ("second", "runs"),
        ("first", "waits for", "second"),
        ("first", "adds", 3),
        ("first", "records"),  # layer 1, beside it the weights of layer 2
        ("first", "runs"),
        ("second", "waits for event"),
        ("second", "runs"),
        ("first", "waits for", "second"),
        ("first", "adds", 3),
        ("first", "runs"),  # the weights of layer 1
        ("first", "adds", 3),
    ]


def test_weights_whose_gradients_something_else_takes(notes, block):
    """Parameters with hooks, and weights that are computed from parameters, as in weight normalisation."""
    model = stack(layers=2)
    seen = []
    model[0].weight_h.register_hook(lambda gradient: seen.append(gradient.clone()))
    torch.nn.utils.parametrizations.weight_norm(model[1], "weight_x")
    loss_of(model).backward()
    expected = gradients(model)
    with block():
        loss_of(model).backward()
    assert same(gradients(model), expected)
    assert len(seen) == 2 and torch.equal(*seen)
    assert not jobs(notes)


def test_a_hook_that_is_added_after_forward(notes, block):
    model, seen = stack(), []
    with block():
        loss = loss_of(model)
        model[2].weight_x.register_hook(lambda gradient: seen.append(gradient.clone()))
        loss.backward()
    assert torch.equal(seen[0], model[2].weight_x.grad) and jobs(notes) == 1


@pytest.mark.parametrize("of", ["x", "weights", "one weight", "inputs"])
def test_backward_passes_that_do_not_add_to_all_gradients(notes, block, of):
    """As in a criterion that needs a gradient itself."""
    model = stack()
    x = torch.ones(B, T, I, requires_grad=True)
    weights = list(model.parameters())
    wanted = {"x": [x], "weights": weights, "one weight": weights[4:5], "inputs": weights[1:2]}[of]

    def found():
        loss = loss_of(model, x)
        if of == "inputs":
            loss.backward(inputs=wanted)
            return [weight.grad for weight in wanted]
        return torch.autograd.grad(loss, wanted)

    expected = found()
    model.zero_grad()
    with block():
        got = found()
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    others = [weight.grad for weight in weights if of != "inputs" or weight is not wanted[0]]
    assert not any(grad is not None for grad in others) and not jobs(notes)


def test_layers_elsewhere(notes, monkeypatch):
    """On another device than the block's."""
    monkeypatch.setattr(overlap, "turned_on", lambda: True)
    model = stack()
    with gradients_beside(torch.device("cuda", 0)):
        loss_of(model).backward()
    assert len(gradients(model)) == len(list(model.parameters())) and not jobs(notes)


def test_other_weights_than_dense_ones_of_known_dtypes(block):
    inside = overlap.Overlap.__new__(overlap.Overlap)
    inside.device = CPU
    dense = torch.ones(3, 4, requires_grad=True)
    assert inside.takes(dense) and inside.takes(dense.detach())
    assert not inside.takes(torch.ones(4, 3).t().requires_grad_())
    assert not inside.takes(torch.ones(3, dtype=torch.float64, requires_grad=True))
    assert not inside.takes(dense * 2)


def test_nested_blocks_and_other_threads(notes, block):
    model = stack()
    with block():
        outer = overlap._own.overlap
        with block():
            assert overlap._own.overlap is not outer
        assert overlap._own.overlap is outer
        elsewhere: list = []
        thread = threading.Thread(target=lambda: elsewhere.append(overlap.in_block([])))
        thread.start()
        thread.join()
        assert elsewhere == [None]
        loss_of(model).backward()
    assert overlap._own.overlap is None and jobs(notes) == 2
    assert not outer.waiting and not outer.running and not outer.at_the_end


def test_weights_that_are_not_trained(notes, block):
    model = stack(layers=2, freeze_recurrent=True)
    loss_of(model).backward()
    expected = gradients(model)
    with block():
        loss_of(model).backward()
    assert same(gradients(model), expected) and not any("weight_h" in name for name in expected)


def test_an_ordinary_backward_pass_after_the_block(notes, block):
    model = stack()
    loss_of(model).backward()
    expected = gradients(model)
    with block():
        loss = loss_of(model)
    loss.backward()
    assert same(gradients(model), expected) and not jobs(notes)


def test_an_error_leaves_nothing_behind(notes, block):
    model = stack()

    def broken(gradient):
        raise ArithmeticError("broken")

    inside = []
    with pytest.raises(ArithmeticError, match="broken"), block():
        inside.append(overlap._own.overlap)
        y = torch.ones(B, T, I)
        for i, layer in enumerate(model):
            y, _ = layer(y)
            if i == 0:
                y.register_hook(broken)
        inside[0].at_the_end.append(lambda: None)
        y.sum().backward()
    assert notes[-1] == ("first", "waits for", "second")
    left = inside[0]
    assert not (left.running or left.waiting or left.at_the_end or left.open)
    model.zero_grad()
    loss_of(model).backward()
    assert len(gradients(model)) == len(list(model.parameters()))


def test_it_does_nothing_on_a_cpu_and_if_it_is_off(notes, monkeypatch):
    model = stack()
    for on, device in ((True, CPU), (False, torch.device("cuda", 0))):
        monkeypatch.setattr(overlap, "turned_on", lambda on=on: on)
        with gradients_beside(device):
            assert overlap.in_block([]) is None
            loss_of(model).backward()
        assert len(gradients(model)) == len(list(model.parameters()))
    assert not jobs(notes)


@pytest.mark.parametrize("given, expected", [("", None), ("0", False), ("1", True), ("on", None)])
def test_the_variable(given, expected, monkeypatch):
    monkeypatch.setenv(overlap.VARIABLE, given)
    overlap.turned_on.cache_clear()
    if expected is None:
        with pytest.raises(ValueError, match="accepted: 0, 1"):
            overlap.turned_on()
    else:
        assert overlap.turned_on() is expected
    monkeypatch.undo()
    overlap.turned_on.cache_clear()
    assert overlap.turned_on() in (False, True)
