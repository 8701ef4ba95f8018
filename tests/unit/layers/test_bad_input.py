"""Wrong input gives a ValueError that names the field, the value and what is accepted."""

from __future__ import annotations

import pytest
import torch

from tsm.export.contract.samples import B, H, I, T, backends, make_layer, make_sample
from tsm.plugin.layers import Recurrent


def test_constructor():
    for arguments, message in [
        (("lsmt", 3, 4), "unknown cell 'lsmt'; did you mean lstm"),
        (("lstm", 0, 4), "input_size = 0; accepted: an integer"),
        (("lstm", 3, -1), "hidden_size = -1; accepted"),
        (("lstm", 3, 4.0), "hidden_size = 4.0; accepted"),
    ]:
        with pytest.raises(ValueError, match=message):
            Recurrent(*arguments)
    for options, message in [
        ({"backend": "cudnn"}, "backend = 'cudnn'; accepted: auto, reference, fused"),
        ({"init": "chron"}, "unknown initialiser 'chron'; did you mean chrono"),
        ({"init": "chrono"}, "t_max"),
        (
            {"init": "chrono", "init_options": {"t_max": 1}},
            "t_max = 1; accepted: a finite number above 2",
        ),
        ({"init": "multi_timescale"}, "alpha = None, timescales = None; accepted: one of the two"),
        ({"init": "multi_timescale", "init_options": {"timescales": [1.0]}}, "4 finite numbers"),
        ({"epsilon": 1.0}, "unknown option of cell 'lstm' 'epsilon'"),
    ]:
        with pytest.raises(ValueError, match=message):
            Recurrent("lstm", 3, 4, **options)


def test_options_of_every_cell(cell):
    with pytest.raises(ValueError, match=r"unknown option of cell.*'no_such'"):
        Recurrent(cell.name, 3, 4, no_such=1)
    for name in cell.constants:
        for value in (float("nan"), "1", True):
            with pytest.raises(ValueError, match=f"{name} = .*; accepted"):
                Recurrent(cell.name, 3, 4, **{name: value})
    for name in cell.vectors:
        for value in (-0.5, [0.5, 0.5], "x", float("inf")):
            with pytest.raises(ValueError, match=f"{name} = .*; accepted: None"):
                Recurrent(cell.name, 3, 4, **{name: value})
    if not cell.elementwise:
        with pytest.raises(ValueError, match=r'"fused".*not element-wise'):
            Recurrent(cell.name, 3, 4, backend="fused")


def test_a_memory_that_has_no_square():
    with pytest.raises(ValueError, match="memory_size x heads = 5 x 4 = 20; accepted: a square"):
        Recurrent("nru", 3, 4, memory_size=5)


def test_calls(cell):
    for backend in backends(cell, torch.float32):
        layer = make_layer(cell, torch.float32, backend)
        sample = make_sample(layer)
        x, state, first = sample.x, sample.state, next(iter(sample.state))
        for bad, message in [
            (x[0], r"x has shape \(17, 3\); accepted: \[B, T, 3\]"),
            (x[..., :2], r"x has shape .*; accepted: \[B, T, 3\]"),
            (x.double(), "x is torch.float64; accepted: the layer's torch.float32"),
        ]:
            with pytest.raises(ValueError, match=message):
                layer(bad)
        for bad, message in [
            ({"h": state["h"], "other": state["h"]}, r"state has .*other.*; accepted for cell"),
            (
                {**state, first: state[first][:2]},
                rf"state\['{first}'\] is .*; accepted: a float tensor",
            ),
            ({**state, first: state[first].long()}, rf"state\['{first}'\] is .*int64"),
            ({**state, first: None}, rf"state\['{first}'\] is a NoneType"),
            ({}, r"state has \[\]; accepted"),
            ((state[first],), "state is a tuple; accepted: a dict"),
        ]:
            with pytest.raises(ValueError, match=message):
                layer(x, bad)
        for bad, message in [
            (torch.tensor([T + 1] * B), rf"lengths has {T + 1}; accepted: 0 to T = {T}"),
            (torch.tensor([-1] * B), "lengths has -1"),
            (torch.ones(B), "lengths is torch.float32"),
            (torch.tensor([1, 2]), r"lengths is .*\(2,\)"),
            (torch.ones(B, dtype=torch.bool), "lengths is torch.bool"),
            ("abc", "lengths = 'abc'; accepted"),
        ]:
            with pytest.raises(ValueError, match=message):
                layer(x, lengths=bad)


def test_dt_for_a_cell_that_takes_none(timeless_cell):
    layer = make_layer(timeless_cell, torch.float32)
    with pytest.raises(
        ValueError, match=f"dt was given, but cell '{timeless_cell.name}' takes none"
    ):
        layer(torch.randn(B, T, I), dt=torch.ones(B, T))


def test_dt_values(dt_cell):
    layer = make_layer(dt_cell, torch.float32)
    x, dt = torch.randn(B, T, I), torch.ones(B, T)
    for bad, shown in [(0.0, "0"), (-1.0, "-1"), (float("nan"), "nan"), (float("inf"), "inf")]:
        spoilt = dt.clone()
        spoilt[2, 3] = bad
        with pytest.raises(ValueError, match=rf"dt has {shown} at \[2, 3\]; accepted: finite"):
            layer(x, dt=spoilt)
    with pytest.raises(ValueError, match=r"dt is .*\(5,\)"):
        layer(x, dt=dt[:, 0])
    with pytest.raises(ValueError, match="dt has inf"):
        layer(x, dt=dt.double() * 1e39)  # finite, but infinite in the layer's type
    shortest = layer.cell.shortest_dt(layer.options)
    if shortest > 0:
        with pytest.raises(ValueError, match=r"dt has .*eps"):
            layer(x, dt=dt * shortest / 2)
        layer(x, dt=dt * shortest)


def test_a_layer_survives_bad_calls(cell):
    """After errors the layer gives the same outputs as before."""
    layer = make_layer(cell, torch.float32)
    x = torch.randn(B, T, I)
    before = layer(x)[0]
    with pytest.raises(ValueError):
        layer(x, lengths=torch.tensor([99] * B))
    assert torch.equal(layer(x)[0], before) and before.shape == (B, T, H)
