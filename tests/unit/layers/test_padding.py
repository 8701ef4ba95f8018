"""Steps past a row's length: whatever x and dt hold there, outputs, states and gradients are the same."""

from __future__ import annotations

import pytest
import torch

import tsm.nn
from tsm.export.contract.samples import backends
from tsm.plugin.layers import Recurrent

B, T, I, H = 3, 5, 4, 6
LENGTHS = [5, 2, 0]


def padded(value):
    """x and dt with a value in the padding."""
    generator = torch.Generator().manual_seed(1)
    x, dt = torch.randn(B, T, I, generator=generator), torch.rand(B, T, generator=generator) + 0.5
    padding = torch.arange(T) >= torch.tensor(LENGTHS)[:, None]
    return x.masked_fill(padding[..., None], value), dt.masked_fill(padding, value)


def results(layer, value, weight):
    """y, the last states, and the gradients of x and the parameters."""
    x, dt = padded(value)
    x.requires_grad_()
    times = {"dt": dt} if layer.cell.takes_dt else {}
    layer.zero_grad()
    y, last = layer(x, lengths=LENGTHS, **times)
    (y * weight).sum().backward()
    states = last.values() if isinstance(last, dict) else [last] if torch.is_tensor(last) else last
    return [y, *states, x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_every_cell(cell, value):
    for backend in backends(cell, torch.float32):
        torch.manual_seed(0)
        layer, weight = Recurrent(cell.name, I, H, backend=backend), torch.randn(B, T, H)
        found = results(layer, value, weight)
        for one, other in zip(found, results(layer, 1.0, weight), strict=True):
            assert one.isfinite().all()
            assert torch.equal(one, other)


def test_without_gradients(cell):
    """The padding reaches neither y nor the states."""
    for backend in backends(cell, torch.float32):
        layer = Recurrent(cell.name, I, H, backend=backend)
        found = []
        for value in (float("nan"), 1.0):
            x, dt = padded(value)
            with torch.no_grad():
                y, last = layer(x, dt=dt if cell.takes_dt else None, lengths=LENGTHS)
            found.append([y, *last.values()])
        for one, other in zip(*found, strict=True):
            assert one.isfinite().all() and torch.equal(one, other)


def test_a_dt_per_row():
    """That of an empty row may be anything."""
    layer = Recurrent("plstm", I, H)
    x, _ = padded(0.0)
    expected, _ = layer(x, dt=torch.tensor([[0.5], [1.5], [1.0]]), lengths=LENGTHS)
    found, _ = layer(x, dt=torch.tensor([[0.5], [1.5], [0.0]]), lengths=LENGTHS)
    assert torch.equal(found, expected)
    with pytest.raises(ValueError, match=r"dt has 0 at \[1, 0\]"):
        layer(x, dt=torch.tensor([[0.5], [0.0], [1.0]]), lengths=LENGTHS)


@pytest.mark.parametrize("kind", [tsm.nn.LSTM, tsm.nn.GRU, tsm.nn.PLSTM])
def test_both_directions(kind):
    torch.manual_seed(0)
    layer = kind(I, H, num_layers=2, batch_first=True, bidirectional=True)
    weight = torch.randn(B, T, 2 * H)
    for one, other in zip(
        results(layer, float("nan"), weight), results(layer, 1.0, weight), strict=True
    ):
        assert one.isfinite().all()
        assert torch.equal(one, other)


def test_dt_that_is_wrong_before_the_end():
    layer = Recurrent("plstm", I, H)
    x, dt = padded(0.0)
    dt[1, 1] = 0.0
    with pytest.raises(ValueError, match=r"dt has 0 at \[1, 1\]; accepted: finite numbers above 0"):
        layer(x, dt=dt, lengths=LENGTHS)
    layer = tsm.nn.PLSTM(I, H)
    with pytest.raises(ValueError, match=r"dt has 0 at \[1, 1\]"):
        layer(x.transpose(0, 1), dt=dt.t(), lengths=LENGTHS)
