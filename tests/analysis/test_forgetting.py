"""Forgetting and decay curves: a layer really behaves as the curves predict."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import pytest
import torch

from tsm.plugin import analysis, build_model
from tsm.plugin.analysis import (
    DecayCurves,
    decay_curves,
    forget_factors,
    forgetting_curves,
    gap_curves,
    memory_of,
    model_decay_curves,
    plot_decay_curves,
    plot_forgetting,
    retention,
)
from tsm.plugin.analysis.probes.forgetting import gate_input
from tsm.plugin.cells import Cell, Vector, get_cell
from tsm.plugin.cells.base import CELLS
from tsm.plugin.cells.plstm import PowerLawCell
from tsm.plugin.layers import Recurrent

B, T, I, H = 3, 24, 4, 5
LEVELS = [0.2, 0.6, 0.93]


def knobs(cell: type[Cell], value: float) -> tuple[dict[str, float], dict[str, float]]:
    """All gates and vectors that forgetting depends on, set to one value; an exponential gate stays at z =
    0."""
    kept = retention(cell)
    gates = [gate for gate in kept.gates if cell.gate_bias(gate)]
    return dict.fromkeys(gates, value), dict.fromkeys(kept.vectors, value)


@torch.no_grad()
def still_layer(cell: type[Cell], value: float) -> Recurrent:
    """A layer whose weights are 0 and whose gates and vectors have one value."""
    gates, vectors = knobs(cell, value)
    layer = Recurrent(cell.name, I, H, backend="reference", **vectors).double()
    for name in ("weight_x", "bias", *layer.weights):
        getattr(layer, name).zero_()
    for gate in gates:
        layer.bias[layer._rows(gate)] = float(gate_input(cell, gate, value))
    return layer


@pytest.mark.parametrize("value", LEVELS)
def test_curve_is_what_two_runs_of_a_layer_show(elementwise_cell, value):
    layer, memory = still_layer(elementwise_cell, value), memory_of(elementwise_cell)
    empty, full = layer.zero_state(1), layer.zero_state(1)
    full[memory] = full[memory] + 1
    expected = []
    for _ in range(30):
        (_, empty), (_, full) = (
            layer(torch.zeros(1, 1, I, dtype=torch.float64), s) for s in (empty, full)
        )
        expected.append(float((full[memory] - empty[memory])[0, 0].detach()))
    gates, vectors = knobs(
        elementwise_cell, float(np.float32(value))
    )  # a layer fixes vectors in float32
    gates = dict.fromkeys(gates, value)
    found = forgetting_curves(elementwise_cell, 30, gates, vectors)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_without_a_state_in_its_factor_it_is_exponential(elementwise_cell):
    if any(name.startswith("s.") for name in retention(elementwise_cell).program.inputs()):
        pytest.skip("its factor changes with an age or a normaliser")
    gates, vectors = knobs(elementwise_cell, 0.9)
    found = forgetting_curves(elementwise_cell, 50, gates, vectors)
    np.testing.assert_allclose(found, found[0] ** np.arange(1, 51), rtol=1e-12)


def test_a_normaliser_shares_the_memory_out():
    """S_n is f^n over the normaliser n_n; it equals 1 / (n + 1) while the forget gate is open."""
    n = np.arange(1, 1001)
    found = forgetting_curves(get_cell("slstm"), 1000, {"f": np.array([1 - 1e-9, 0.9])})
    np.testing.assert_allclose(found[0], 1 / (n + 1), rtol=1e-5)
    np.testing.assert_allclose(found[1], 0.9**n / (0.9**n + (1 - 0.9**n) / 0.1), rtol=1e-9)


def test_with_a_shut_reset_gate_it_is_a_power_law(power_law_cell):
    p = np.array([0.2, 0.5, 1.5])
    found = forgetting_curves(power_law_cell, 10_000, {"r": 1e-12}, {"p": p}, {"eps": 1e-12})
    n = np.arange(1, 10_001)
    np.testing.assert_allclose(found, (n + 1.0) ** -p[:, None], rtol=1e-6)


def test_an_open_reset_gate_ends_the_power_law(power_law_cell):
    found = forgetting_curves(power_law_cell, 5000, {"r": 0.01}, {"p": 0.5}, {"eps": 1e-12})
    assert found[10] == pytest.approx(12**-0.5, rel=0.1)
    assert found[-1] / found[-2] == pytest.approx(0.99**0.5, rel=1e-6)


def test_what_forgetting_depends_on_is_read_from_the_program():
    assert retention(get_cell("lstm")).gates == ("f",)
    assert retention(get_cell("lstm_refine")).gates == ("f", "r")
    assert (retention(get_cell("plstm")).gates, retention(get_cell("plstm")).vectors) == (
        ("r",),
        ("p",),
    )
    assert memory_of(get_cell("janet")) == "h" and memory_of(get_cell("nru")) == "m"


def test_a_dependence_through_another_state_is_found():
    class Slow(Cell):
        """A cell whose forget factor is itself a state, which a gate changes."""

        gates = ("g", "u")
        states = ("h", "c", "age")
        vectors: ClassVar = {"tau": Vector(link="exp", start=(1.0, 9.0))}

        @staticmethod
        def step(ops, z, s, v, const, dt):
            c = ops.sigmoid(-s.age) * s.c + ops.tanh(z.g)
            return dict(h=ops.tanh(c), c=c, age=s.age / v.tau + ops.sigmoid(z.u))

    kept = retention(Slow)
    assert (kept.gates, kept.vectors) == (("u",), ("tau",))


def test_gaps_of_a_layer_without_weights_are_its_forgetting_curve(elementwise_cell):
    """The gap between two runs that start from different memories equals the product of the forget factors."""
    found = gap_curves(still_layer(elementwise_cell, 0.6), 20, pairs=3)
    gates, vectors = knobs(elementwise_cell, 0.6)
    expected = forgetting_curves(elementwise_cell, 20, gates, vectors)
    np.testing.assert_allclose(found, np.broadcast_to(expected, (3, 20)), rtol=1e-5, atol=1e-9)


def test_gaps_of_any_cell(cell):
    found = gap_curves(Recurrent(cell.name, I, 16), 10, pairs=4)
    assert found.shape == (4, 10) and np.isfinite(found).all() and (found > 0).any()


def test_factors_are_the_gradient_of_one_step(elementwise_cell):
    """The forget factor on data equals the derivative by autograd, from a nonzero state, with dt if the cell
    takes it."""
    layer = Recurrent(elementwise_cell.name, I, H, backend="reference").double()
    memory = memory_of(elementwise_cell)
    if memory == "h" and layer.weights:  # the recurrent weights would add to the derivative
        layer.weight_h.data.zero_()
    x = torch.randn(B, T, I, dtype=torch.float64)
    dt = torch.rand(B, T, dtype=torch.float64) + 0.1 if elementwise_cell.takes_dt else None
    state = {name: torch.rand_like(value) for name, value in layer.zero_state(B).items()}
    found = forget_factors(layer, x, state, dt)
    for t in range(T):
        leaf = state[memory].detach().requires_grad_()
        _, new = layer(
            x[:, t : t + 1], {**state, memory: leaf}, None if dt is None else dt[:, t : t + 1]
        )
        (expected,) = torch.autograd.grad(new[memory].sum(), leaf)
        np.testing.assert_allclose(found[:, t], expected, rtol=1e-9, atol=1e-12)
        state = {name: value.detach() for name, value in new.items()}


def test_decay_is_the_mean_product_of_factors(elementwise_cell):
    layer = Recurrent(elementwise_cell.name, I, H)
    x, lengths = torch.randn(B, T, I), torch.tensor([T, 7, 2])
    curves = decay_curves(layer, x, steps=[1, 3, 6], lengths=lengths)
    factors = forget_factors(layer, x)
    for j, n in enumerate(curves.steps):
        runs = [
            factors[b, t : t + n].prod(axis=0)
            for b in range(B)
            for t in range(int(lengths[b]) - n + 1)
        ]
        np.testing.assert_allclose(curves.survival[:, j], np.mean(runs, axis=0), rtol=1e-9)


def test_timescales():
    n = np.arange(1, 101)
    curves = DecayCurves(n, np.stack([np.exp(-n / 20), 0.2**n, np.full(100, 0.9)]))
    times = curves.timescales()
    assert times[0] == pytest.approx(20, rel=1e-3)
    assert times[1] == pytest.approx(1 / np.log(5))  # within the first step
    assert times[2] == np.inf


def test_a_closed_gate_gives_zero_and_no_nan():
    layer = Recurrent("lstm", I, H).double()
    with torch.no_grad():
        layer.bias[layer._rows("f")] = -1e4
    survival = decay_curves(layer, torch.randn(B, T, I, dtype=torch.float64)).survival
    assert (survival < 1e-290).all()


def test_every_layer_of_a_model_in_order():
    model = build_model(
        "plstm_lm", vocab_size=9, decoder_hidden_size=H, decoder_layers=2, dropouth=0.5
    )
    model.train()
    found = model_decay_curves(model, torch.randint(9, (B, T)))
    assert [c.label for c in found] == ["plstm, layer 1", "plstm, layer 2"]
    assert all(c.survival.shape == (H, len(c.steps)) for c in found)
    assert model.training and not any(m._forward_pre_hooks for m in model.modules())
    again = model_decay_curves(model, torch.randint(9, (B, T)))[0]
    assert again.steps[-1] == T // 2


def test_pictures_of_every_cell(cell, tmp_path):
    assert plot_forgetting(cell, tmp_path / "a" / "curve.png", steps=30).stat().st_size > 5000


def test_a_picture_of_a_cell_without_a_gate_that_forgets(tmp_path):
    class Fixed(PowerLawCell):
        """A leak that only a vector sets."""

        states = ("h", "c")
        gates = ("g",)
        takes_dt = False

        @staticmethod
        def step(ops, z, s, v, const, dt):
            c = ops.exp(-v.p) * s.c + ops.tanh(z.g)
            return dict(h=ops.tanh(c), c=c)

    assert "fixed" not in CELLS.names()
    assert plot_forgetting(Fixed, tmp_path / "fixed.png", steps=30).is_file()


def test_pictures_of_units_and_gates(tmp_path):
    layer = Recurrent("lstm", I, H)
    curves = decay_curves(layer, torch.randn(B, T, I))
    both = [curves, dataclasses.replace(curves, label="again")]
    for i, given in enumerate([curves, both]):
        assert plot_decay_curves(given, tmp_path / f"{i}.png", title="units").is_file()
    for name in (
        "gates.svg",
        "again.svg",
    ):  # the second call must work too, when modules are already loaded
        assert analysis.plot_gates(tmp_path / name).is_file()


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: retention(get_cell("nru")), "not element-wise"),
        (lambda: forgetting_curves(get_cell("lstm"), 0), "steps = 0"),
        (lambda: forgetting_curves(get_cell("lstm"), 3, {"q": 0.5}), "gates has 'q'.*i, f, g, o"),
        (lambda: forgetting_curves(get_cell("lstm"), 3, {"f": 1.0}), "between 0 and 1"),
        (lambda: forgetting_curves(get_cell("lstm"), 3, {"g": 0.5}), "no activation"),
        (lambda: forgetting_curves(get_cell("plstm"), 3), "vectors has no 'p'"),
        (lambda: forgetting_curves(get_cell("plstm"), 3, vectors={"p": -1}), "above 0"),
        (lambda: gap_curves(Recurrent("nru", I, H), 3, pairs=0), "pairs = 0"),
        (lambda: decay_curves(Recurrent("lstm", I, H), torch.randn(B, T, I + 1)), "x has shape"),
        (lambda: decay_curves(Recurrent("lstm", I, H), torch.randn(0, T, I)), "x has shape"),
        (lambda: decay_curves(Recurrent("lstm", I, H), torch.randn(B, T, I), [0]), "steps = "),
        (
            lambda: decay_curves(Recurrent("lstm", I, H), torch.randn(B, T, I), [T + 1]),
            "up to the longest",
        ),
        (lambda: decay_curves(Recurrent("nru", I, H), torch.randn(B, T, I)), "not element-wise"),
        (
            lambda: model_decay_curves(torch.nn.Linear(2, 2), torch.ones(1, 2)),
            "without a Recurrent",
        ),
        (lambda: plot_decay_curves([], "nowhere.png"), "curves is empty"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
