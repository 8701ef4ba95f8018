"""Gradients of activation regularisers: the call of the kernel, and on a GPU the kernel, against autograd."""

from __future__ import annotations

import pytest
import torch

from emulated_cuda import DTYPES, at, stand_in
from tsm.plugin.layers import gpu, regularisers
from tsm.plugin.layers.regularisers import regulariser_gradients


def emulated(dtype, device, count, ar, tar, stream):
    """The core's function on host memory."""
    number = at(count, (1,), (1,), torch.float32)
    for given, of_changes in ((ar, False), (tar, True)):
        if given is None:
            continue
        values, steps, shape, factor, grad = given
        y = at(values, tuple(shape), (*steps, 1), DTYPES[dtype]).float()
        if of_changes:
            y = torch.cat([y[:, :1], y, y[:, -1:]], 1).diff(n=2, dim=1)
        dense = torch.empty(tuple(shape), device="meta").stride()
        at(grad, tuple(shape), dense, DTYPES[dtype])[:] = y * (number * factor)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A GPU, or the host with an emulated kernel."""
    if request.param == "cpu":
        stand_in(monkeypatch, regularisers, regulariser_gradients_cuda=emulated)
    return request.param


@pytest.fixture(params=["kernel", "torch"])
def way(request, monkeypatch):
    """The formulas of torch, or the kernel."""
    if request.param == "torch":
        monkeypatch.setattr(regularisers, "has_kernel", lambda arrays, count: False)
    return request.param


def activations(device, dtype):
    """Values after and before dropout; some are views of wider rows, as layers return them."""
    torch.manual_seed(1)
    for B, T, H in ((3, 7, 5), (20, 70, 400), (1, 2, 1), (2, 1, 130)):
        before = 8 if H % 8 == 0 else 2  # units in the row of a step
        y = torch.randn(B, T + 1, before + H).to(device, dtype)[:, 1:, before:]
        yield y * (torch.rand(B, 1, H, device=device) < 0.5), y
        yield y, y
        yield y[:, -1], y  # one output per sequence
    yield torch.randn(2, 9, device=device, dtype=dtype), y  # in groups of 8, and not


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("alpha, beta", [(2.0, 1.0), (0.5, 0.0), (0.0, 3.0)])
def test_as_autograd(device, way, dtype, alpha, beta):
    for d, y in activations(device, dtype):
        d, y = (t.detach().requires_grad_() for t in (d, y))
        count = torch.tensor(70.0, device=device)
        found = regulariser_gradients(d, y, count, alpha, beta)
        wanted = []
        if alpha:
            wanted.append((d, alpha * d.double().square().mean()))
        if beta and y.shape[1] > 1:
            wanted.append((y, beta * y.double().diff(dim=1).square().mean()))
        assert [root for root, _ in found] == [root for root, _ in wanted]
        for (root, gradient), (_, term) in zip(found, wanted, strict=True):
            (exact,) = torch.autograd.grad(70 * term, root)
            assert gradient.dtype == dtype and not gradient.requires_grad
            torch.testing.assert_close(gradient, exact)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_have_the_same_bits(dtype, monkeypatch):
    count = torch.tensor(1400.0, device="cuda")
    for d, y in activations("cuda", dtype):
        launched = regulariser_gradients(d, y, count, 2.0, 1.0)
        with monkeypatch.context() as patch:
            patch.setattr(regularisers, "has_kernel", lambda arrays, count: False)
            by_torch = regulariser_gradients(d, y, count, 2.0, 1.0)
        for (_, ours), (_, theirs) in zip(launched, by_torch, strict=True):
            assert torch.equal(ours, theirs)


def test_other_arrays_take_torchs_operations(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    y, count = torch.randn(2, 3, 4), torch.tensor(6.0)
    assert regularisers.has_kernel([y, y[:, 1:]], count)
    assert not regularisers.has_kernel([y, y.bfloat16()], count)
    assert not regularisers.has_kernel([y.transpose(1, 2)], count)
    assert not regularisers.has_kernel([y[:0]], count)
    assert not regularisers.has_kernel([y], count.double())
    assert not regularisers.has_kernel([y], count.to("meta"))
    assert not regularisers.has_kernel([y[:1, :1, :1].expand(1 << 17, 1 << 14, 1)], count)
    monkeypatch.undo()
    assert not regularisers.has_kernel([y], count)  # on the CPU
