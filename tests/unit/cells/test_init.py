"""Initialisers set the gates' initial values, whatever activation the cell uses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from scipy.stats import invgamma

from tsm.plugin.cells import get_cell, list_cells
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.cells.tape.tape import Tape
from tsm.plugin.init import INITIALISERS, inverse_gamma
from tsm.plugin.layers import Recurrent
from tsm.plugin.nn import RNN

H = 64
OPTIONS = {"chrono": {"t_max": 300.0}, "multi_timescale": {"alpha": 0.56}}


def gate_value(layer, gate):
    """The gate's value where z equals its bias; the activation is taken from the cell's tape."""
    rows = layer._rows(gate)
    bias = layer.effective_bias()[rows].detach().double().numpy()
    for node in layer.cell.tape().nodes:
        if node.op == "log_sigmoid" and node.args == (f"z.{gate}",):
            return np.exp(NumpyOps.log_sigmoid(bias))
        if node.args == (f"z.{gate}",) and hasattr(NumpyOps, node.op):
            return getattr(NumpyOps, node.op)(bias)
        if node.op in ("sigmoid", "fast_sigmoid", "softsign_gate"):
            inside = Tape(layer.cell.tape().nodes, {"x": node.args[0]}).pruned()
            if inside.inputs() == {f"z.{gate}"}:  # a function of z inside the activation
                x = inside.run(NumpyOps, {f"z.{gate}": bias})["x"]
                return getattr(NumpyOps, node.op)(x)
    raise AssertionError(f"no activation of {gate} in {layer.cell.name}")


def kept(layer):
    """1 - r of a power-law layer where z equals its bias, which is the age after one step of length 1."""
    with torch.no_grad():
        return layer(torch.zeros(1, 1, 3))[1]["age"][0].double().numpy()


@pytest.mark.parametrize("init", INITIALISERS.names())
def test_with_every_cell_that_has_the_gates(cell, init):
    options = OPTIONS.get(init, {})
    power_law = "age" in cell.states
    forget = next((gate for gate in "fu" if gate in cell.gates), None)
    if init != "default" and forget is None and not power_law:
        with pytest.raises(ValueError, match=f"{init}.*'f'.*{cell.name}"):
            Recurrent(cell.name, 3, H, init=init, init_options=options)
        return
    layer = Recurrent(cell.name, 3, H, init=init, init_options=options)
    if init == "default":
        assert layer.bias.abs().max() <= H**-0.5
        return
    f = kept(layer) if power_law else gate_value(layer, forget)
    if init == "forget_one":
        np.testing.assert_allclose(f, 1 / (1 + np.exp(-1)), rtol=1e-6)
    if init == "chrono":
        u = f / (1 - f)
        assert u.min() > 1 and u.max() < 299 and u.std() > 50
    if init == "uniform_gate":
        assert f.min() >= 1 / H - 1e-6 and f.max() <= 1 - 1 / H + 1e-6 and 0.4 < f.mean() < 0.6
    if init == "multi_timescale":
        np.testing.assert_allclose(
            -1 / np.log(f[f > 1e-3]), inverse_gamma(H, 0.56)[f > 1e-3], rtol=3e-2
        )
    if init in ("chrono", "multi_timescale") and "i" in cell.gates and cell.gate_bias("i"):
        np.testing.assert_allclose(gate_value(layer, "i"), 1 - f, atol=1e-6)


def test_values_out_of_reach():
    for cell, timescale in [("lstm_softsign", 1e-3), ("lstm", 1e-40)]:
        options = {"timescales": [timescale] * H}
        with pytest.raises(ValueError, match="cannot start so close to 0 or 1"):
            Recurrent(cell, 3, H, init="multi_timescale", init_options=options)
    with pytest.raises(ValueError, match=r"t_max = inf; accepted"):
        Recurrent("lstm", 3, H, init="chrono", init_options={"t_max": float("inf")})


def test_papers_biases():
    for name, expected in {
        "lstm": 1.0,
        "lstm_fast": np.arcsinh(1),
        "lstm_softsign": np.e - 1,
    }.items():
        layer = Recurrent(name, 3, H, init="forget_one")
        np.testing.assert_allclose(layer.bias[layer._rows("f")].detach(), expected, rtol=1e-6)
    layer = Recurrent("lstm_refine_tied", 3, H, init="uniform_gate")
    f, r = (layer.bias[layer._rows(g)] for g in "fr")
    assert torch.equal(f, -r)


def test_inverse_gamma_timescales():
    found = inverse_gamma(1150, 0.56)
    np.testing.assert_allclose(found, invgamma.isf(np.arange(1, 1151) / 1151, 0.56))
    assert found[0] == pytest.approx(360e3, rel=0.05) and found[-1] == pytest.approx(
        0.174, rel=0.01
    )
    assert np.mean(found < 20) == pytest.approx(0.79, abs=0.01)
    assert (np.diff(found) < 0).all()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_frozen_biases_survive_training_bit_for_bit(optimizer):
    timescales = np.geomspace(1, 1e5, H)
    layer = Recurrent("lstm", 3, H, init="multi_timescale", init_options={"timescales": timescales})
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
    opt = make(layer.parameters(), lr=0.1, weight_decay=0.1)
    before = layer.effective_bias().detach().clone()
    for _ in range(5):
        opt.zero_grad()
        layer(torch.randn(2, 6, 3))[0].square().sum().backward()
        opt.step()
    after = layer.effective_bias().detach()
    assert torch.equal(layer.state_dict()["bias"], after)
    frozen = torch.zeros_like(before, dtype=torch.bool)
    for gate in "if":
        frozen[layer._rows(gate)] = True
    assert torch.equal(after[frozen], before[frozen])
    assert (after[~frozen] != before[~frozen]).all()
    copy = Recurrent("lstm", 3, H, init="multi_timescale", init_options={"timescales": timescales})
    copy.load_state_dict(layer.state_dict())
    assert torch.equal(copy.effective_bias(), after)


def test_the_whole_bias_may_be_frozen():
    options = {"alpha": 0.56, "freeze_all": True}
    layer = Recurrent("lstm", 3, H, init="multi_timescale", init_options=options)
    part = Recurrent("lstm", 3, H, init="multi_timescale", init_options={"alpha": 0.56})
    assert layer.frozen.all() and part.frozen.sum() == 2 * H
    before = layer.effective_bias().detach().clone()
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.randn(2, 6, 3))[0].square().sum().backward()
    opt.step()
    assert torch.equal(layer.effective_bias(), before)


@pytest.mark.parametrize("init", INITIALISERS.names())
def test_pickled_layers_are_the_same_layer(init):
    """This also holds for the hook that restores frozen biases before saving, which is registered only once."""
    layer = Recurrent("lstm", 3, 8, init=init, init_options=OPTIONS.get(init, {}))
    layer.reset_parameters()
    assert len(layer._state_dict_pre_hooks) == 1
    saved = {name: value.clone() for name, value in layer.state_dict().items()}
    copy = pickle.loads(pickle.dumps(layer))
    if "frozen" in saved:
        with torch.no_grad():
            copy.bias[copy.frozen] += 1
    assert all(torch.equal(value, saved[name]) for name, value in copy.state_dict().items())


@pytest.mark.parametrize("make", [Recurrent, RNN])
def test_nru_starts_like_linear_layers(make):
    """Each map is drawn from U(-1/sqrt n, 1/sqrt n), n its number of inputs."""
    layer = make("nru", 100, 128, memory_size=64)
    for name, parameter in layer.named_parameters():
        reads_x = not any(map_ in name for map_ in ("alpha", "beta", "write", "erase"))
        bound = (128 + 64 + 100 * reads_x) ** -0.5
        largest = parameter.abs().max()
        assert largest <= bound and (parameter.numel() < 64 or largest > 0.9 * bound), name


def test_learned_vectors_start_from_a_range():
    layer = Recurrent("plstm", 3, 1000, vector_starts={"p": (0.2, 0.4)})
    values = layer.vectors()["p"].detach()
    assert values.min() > 0.2 and values.max() < 0.4
    assert values.std() == pytest.approx(0.2 / 12**0.5, rel=0.1)
    for starts, said in (
        ({"p": (0.4, 0.2)}, "0 <= low < high <= 1"),
        ({"p": (0.4, 1.5)}, "0 <= low < high <= 1"),
        ({"p": (0.4,)}, "two numbers"),
        ({"q": (0.1, 0.2)}, "q of cell 'plstm' is not learned"),
    ):
        with pytest.raises(ValueError, match=said):
            Recurrent("plstm", 3, 4, vector_starts=starts)
    with pytest.raises(ValueError, match="p of cell 'plstm' is not learned"):
        Recurrent("plstm", 3, 4, vector_starts={"p": (0.1, 0.2)}, p=0.5)


def test_learned_and_fixed_vectors():
    for cell in map(get_cell, list_cells()):
        for name, vector in cell.vectors.items():
            learned = Recurrent(cell.name, 3, 1000)
            values = learned.vectors()[name].detach()
            low, high = vector.start
            assert low <= values.min() and values.max() <= high
            if vector.spread == "log":  # log-uniform: as many values in 1 to 10 as in 100 to 1000
                values, (low, high) = values.log(), np.log(vector.start)
            assert values.std() == pytest.approx((high - low) / 12**0.5, rel=0.1)
            fixed = Recurrent(cell.name, 3, 4, **{name: 1.5})
            assert torch.equal(fixed.vectors()[name], torch.full((4,), 1.5))
            assert f"{name}_raw" not in dict(fixed.named_parameters())
