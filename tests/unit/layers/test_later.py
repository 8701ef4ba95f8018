"""Gradients of weights beside the recurrence of the next layer are those of an ordinary backward pass."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import emulated_cuda
from tsm.plugin.layers import Recurrent, later, layer_cuda, operator
from tsm.plugin.layers.later import gradients_beside

B, T, I, H = 3, 5, 4, 11
CPU = torch.device("cpu")


class Stream:
    """Stands for a CUDA stream. All of them note what they are told in one list."""

    def __init__(self, name: str, notes: list) -> None:
        self.cuda_stream, self.name, self.notes = name, name, notes

    def wait_event(self, event) -> None:
        self.notes.append((self.name, "waits for", event.of))


class Event:
    def record(self, stream) -> None:
        self.of = f"{len(stream.notes)} on {stream.name}"
        stream.notes.append((stream.name, "records", self.of))


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
    monkeypatch.setattr(later, "_second_stream", lambda device: second)
    run = emulated_cuda.Launches.run

    def noted(launches, addresses, stream) -> None:
        found.append((stream, "runs", len(launches.all)))
        run(launches, addresses, stream)

    monkeypatch.setattr(emulated_cuda.Launches, "run", noted)
    for described in (layer_cuda._forward, layer_cuda._backward):
        described.cache_clear()
    return found


@pytest.fixture
def block(monkeypatch):
    """Opens a block as on a GPU."""
    monkeypatch.setattr(later, "ON", True)
    return lambda: gradients_beside(torch.device("cuda", 0))


def stack(cell: str = "lstm", layers: int = 3, **settings) -> torch.nn.ModuleList:
    sizes = [I] + [H] * layers
    return torch.nn.ModuleList(Recurrent(cell, *pair, **settings) for pair in pairwise(sizes))


def loss_of(layers) -> torch.Tensor:
    y = torch.linspace(-1, 1, B * T * I).view(B, T, I)
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
    runs = [(stream, what) for stream, what, _ in notes]
    assert runs == [
        ("first", "records"),  # layer 3
        ("first", "runs"),
        ("first", "records"),  # layer 2, beside it the weights of layer 3
        ("first", "runs"),
        ("second", "waits for"),
        ("second", "runs"),
        ("second", "records"),
        ("first", "waits for"),  # layer 1, when they are done; beside it those of layer 2
        ("first", "records"),
        ("first", "runs"),
        ("second", "waits for"),
        ("second", "runs"),
        ("second", "records"),
        ("first", "waits for"),
        ("first", "runs"),  # the weights of layer 1
    ]
    waits = [what for _, kind, what in notes if kind == "waits for"]
    events = [what for _, kind, what in notes if kind == "records"]
    assert waits == events[1:]  # each for the one before


def test_weights_whose_gradients_something_else_takes(notes, block):
    """Parameters with hooks, and weights that are computed from parameters, as in weight normalisation."""
    model = stack(layers=2)
    seen = []
    model[0].weight_h.register_hook(lambda gradient: seen.append(gradient.clone()))
    torch.nn.utils.parametrizations.weight_norm(model[1], "weight_x")
    loss_of(model).backward()
    expected = gradients(model)
    notes.clear()
    with block():
        loss_of(model).backward()
    assert same(gradients(model), expected)
    assert len(seen) == 2 and torch.equal(*seen)
    assert not any(stream == "second" for stream, *_ in notes)


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
    assert same(gradients(model), expected)


def test_an_error_leaves_nothing_behind(notes, block):
    model = stack()

    def broken(gradient):
        raise ArithmeticError("broken")

    with pytest.raises(ArithmeticError, match="broken"), block():
        y = torch.ones(B, T, I)
        for i, layer in enumerate(model):
            y, _ = layer(y)
            if i == 0:
                y.register_hook(broken)
        y.sum().backward()
    assert notes[-1][:2] == ("first", "waits for")
    model.zero_grad()
    loss_of(model).backward()
    assert len(gradients(model)) == len(list(model.parameters()))


def test_it_does_nothing_on_a_cpu_and_if_it_is_off(notes, monkeypatch):
    model = stack()
    for on, device in ((True, CPU), (False, torch.device("cuda", 0))):
        monkeypatch.setattr(later, "ON", on)
        with gradients_beside(device):
            loss_of(model).backward()
        assert len(gradients(model)) == len(list(model.parameters()))
    assert not any(stream == "second" or kind == "records" for stream, kind, _ in notes)
