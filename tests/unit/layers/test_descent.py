"""Clipping and NT-ASGD's step in two launches: the kernels' calls, and on a GPU the kernels, against torch."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch

from emulated_cuda import stand_in
from tsm.plugin.layers import descent
from tsm.plugin.train.clipping import divide_gradients, norm_and_factor
from tsm.plugin.train.nt_asgd import NonMonotonicASGD

ODD = (1, 3, 4095, 4096, 4097, 0, 14, 20_013)


def at(address, length, dtype=torch.float32):
    if not length:
        return torch.empty(0, dtype=dtype)
    raw = (ctypes.c_char * (length * dtype.itemsize)).from_address(address)
    return torch.frombuffer(raw, dtype=dtype)


def emulated_norm(device, gradients, lengths, count, limit, blocks, out, stream):
    """The core's function on host memory."""
    found = at(out, 2 + blocks, torch.float64)
    assert not found[:2].any()
    squares = [at(g, n).double().square().sum() for g, n in zip(gradients, lengths, strict=True)]
    by = 1 / at(count, 1, torch.float64)[0].clamp(min=torch.finfo(torch.float32).tiny)
    norm = sum(squares).sqrt() * by
    found[0], found[1] = norm, by * (limit / (norm + 1e-6)).clamp(max=1.0)


def emulated_descend(
    device, weights, gradients, averages, lengths, factor, rate, decay, share, stream
):
    for i, n in enumerate(lengths):
        w, g = at(weights[i], n), at(gradients[i], n)
        w -= rate * ((at(factor, 1, torch.float64).float() if factor else 1.0) * g + decay * w)
        if averages:
            at(averages[i], n).lerp_(w, share)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A GPU, or the host with emulated kernels."""
    if request.param == "cpu":
        stand_in(
            monkeypatch, descent, gradient_norm_cuda=emulated_norm, descend_cuda=emulated_descend
        )
    return request.param


def number(value, device):
    return torch.tensor(value, dtype=torch.float64, device=device)


def numbers(lengths, device, shift=0, size=1.0):
    """Contiguous arrays; those with a shift do not begin at a multiple of 16 bytes."""
    generator = torch.Generator().manual_seed(1)
    rows = [size * torch.randn(n + shift, generator=generator).to(device)[shift:] for n in lengths]
    return [row.view(7, -1) if len(row) % 7 == 0 else row for row in rows]  # some are matrices


def train(lengths, device, limit, gradients, ours, monkeypatch, shift=0):
    """Three updates, two of them averaged; (norms, weights, averages)."""
    weights = [torch.nn.Parameter(w) for w in numbers(lengths, device, shift)]
    groups = [{"params": weights[:3], "weight_decay": 0.1}, {"params": weights[3:]}]
    optimizer = NonMonotonicASGD(groups, lr=0.5, start_update=1)
    assert optimizer.takes_factor
    norms = []
    with monkeypatch.context() as patch:
        if not ours:
            patch.setattr(descent, "has_kernels", lambda arrays: False)
        for step in range(3):
            for w, g in zip(weights, gradients, strict=True):
                w.grad = (g * (step + 1)).clone() if shift == 0 else _shifted(g * (step + 1))
            count = number(7.0, device)
            if ours and limit < math.inf:
                found = norm_and_factor([w.grad for w in weights], count, limit)
                optimizer.step(factor=found[1])
                norms.append(found[0])
            else:
                norms.append(divide_gradients(weights, count, limit))
                optimizer.step()
    averages = [optimizer.state[w]["average"] for w in weights]
    return torch.stack(norms), [w.detach() for w in weights], averages


def _shifted(gradient):
    room = gradient.new_empty(gradient.numel() + 1)
    room[1:] = gradient.flatten()
    return room[1:].view(gradient.shape)


@pytest.mark.parametrize("limit", [0.25, 1e9, math.inf])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("blocks", [3, descent.BLOCKS])
@pytest.mark.parametrize("lengths", [ODD, (5,) * 64, (9000,) * 130], ids=["odd", "64", "130"])
def test_as_with_torch(device, monkeypatch, lengths, blocks, shift, limit):
    monkeypatch.setattr(descent, "BLOCKS", blocks)
    gradients = numbers(lengths, device, size=3.0)
    found, wanted = (
        train(lengths, device, limit, gradients, ours, monkeypatch, shift) for ours in (True, False)
    )
    if limit < math.inf:
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-13, atol=0)
    torch.testing.assert_close(found[1:], wanted[1:], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
def test_special_values(device, monkeypatch, value):
    gradients = numbers(ODD, device)
    gradients[2].view(-1)[7] = value
    found, wanted = (
        train(ODD, device, 1.0, gradients, ours, monkeypatch) for ours in (True, False)
    )
    assert found[0][0].isfinite() == math.isfinite(value)
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_a_count_of_0_leaves_gradients_of_0(device):
    gradients = [torch.zeros(5, device=device)]
    norm, factor = norm_and_factor(gradients, number(0.0, device), 0.25).tolist()
    assert norm == 0 and math.isfinite(factor)


def test_which_arrays_have_kernels(device):
    one, other = torch.ones(4, 4, device=device), torch.ones(4, device=device)
    assert descent.has_kernels([one, other])
    assert not descent.has_kernels([])
    assert not descent.has_kernels([one, other.double()])
    assert not descent.has_kernels([one.t()[:2], other])
    assert not descent.has_kernels([other, torch.ones(4, device="meta")])


def test_a_strided_gradient_is_multiplied_too(device):
    w = torch.nn.Parameter(torch.zeros(2, 3, device=device))
    w.grad = torch.arange(6.0, device=device).view(3, 2).t()
    wanted = -0.25 * w.grad
    NonMonotonicASGD([w], lr=1.0).step(factor=number(0.25, device))
    assert torch.equal(w.detach(), wanted)


def test_a_strided_average_is_kept(device):
    w = torch.nn.Parameter(torch.zeros(2, 3, device=device))
    optimizer = NonMonotonicASGD([w], lr=1.0, start_update=1)
    optimizer.state[w]["average"] = torch.zeros(3, 2, device=device).t()
    for _ in range(3):
        w.grad = torch.arange(6.0, device=device).view(2, 3)
        optimizer.step()
    assert torch.equal(optimizer.state[w]["average"], -2.5 * w.grad)  # of -2 and -3 times it


def test_a_subclass_with_its_own_step_finds_multiplied_gradients(device):
    class Mine(NonMonotonicASGD):
        def step(self, closure=None):
            return super().step(closure)

    weights = [torch.nn.Parameter(torch.zeros(2, 3, device=device))]
    assert NonMonotonicASGD(weights).takes_factor and not Mine(weights).takes_factor


def test_autograd_knows_that_weights_have_changed(device):
    w = torch.nn.Parameter(torch.ones(3, device=device))
    optimizer = NonMonotonicASGD([w], lr=1.0, start_update=1)
    average = optimizer.state[w]["average"] = torch.zeros_like(w)
    for _ in range(2):  # averaging begins after the first
        loss, version = w.square().sum(), average._version
        w.grad = torch.ones_like(w)
        optimizer.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    assert average._version > version


@pytest.mark.gpu
def test_same_bits_in_every_call(monkeypatch):
    lengths = (*ODD, 3_000_000) * 10
    gradients = numbers(lengths, "cuda")
    runs = [train(lengths, "cuda", 0.25, gradients, True, monkeypatch) for _ in range(5)]
    for norms, weights, averages in runs[1:]:
        assert torch.equal(norms, runs[0][0])
        assert all(map(torch.equal, weights + averages, runs[0][1] + runs[0][2]))


@pytest.mark.gpu
def test_nothing_outside_an_array_is_written():
    room = torch.ones(10_000, device="cuda")
    w, g, a = room[3:5000], torch.ones(4997, device="cuda"), torch.zeros(4997, device="cuda")
    descent.descend([w], [g], [a], None, 2.0, 0.0, 0.5)
    assert torch.equal(room[:3], torch.ones_like(room[:3])) and room[5000:].eq(1).all()
    assert w.eq(-1).all() and a.eq(-0.5).all()
