"""The losses of rows of logits: the kernel's calls, and on a GPU the kernel, against torch's cross_entropy."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy

from tsm.plugin.layers import gpu, row_loss


def at(address, dtype, *shape):
    size = math.prod(shape) * dtype.itemsize
    raw = (ctypes.c_char * size).from_address(address)
    return torch.frombuffer(raw, dtype=dtype).view(shape)


def emulated(dtype, device, rows, classes, logits, target, log_sums, grad, grad_step, out, stream):
    """The core's function on host memory."""
    kind = getattr(torch, dtype)
    z = at(logits, kind, rows, classes).float()
    y, sums = at(target, torch.int64, rows), at(log_sums, torch.float32, rows)
    if not grad:
        sums.copy_(z.logsumexp(1))
        at(out, torch.float32, rows).copy_(sums - z.gather(1, y[:, None])[:, 0])
        return
    g = torch.stack([at(grad + 4 * grad_step * row, torch.float32, 1) for row in range(rows)])
    one_hot = torch.nn.functional.one_hot(y, classes)
    at(out, kind, rows, classes).copy_(g * ((z - sums[:, None]).exp() - one_hot))


def compare(logits, target, weight):
    """Losses and gradients of both forms; those of torch in float64."""
    exact = logits.detach().double().requires_grad_()
    wanted = cross_entropy(exact, target, reduction="none")
    (wanted * weight).sum().backward()
    logits.requires_grad_()
    found = row_loss.row_losses(logits, target)
    (found * weight).sum().backward()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    tolerance = 1e-5 if logits.dtype == torch.float32 else 2**-8
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=tolerance, atol=1e-7)


def cases(device):
    torch.manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16):
        for rows, classes in ((5, 16), (3, 7), (1, 1), (40, 10000)):
            logits = (4 * torch.randn(rows, classes)).to(device, dtype)
            target = torch.randint(classes, (rows,), device=device)
            yield logits, target, torch.rand(rows, device=device)
            yield logits[:, : classes // 2 + 1].detach(), target % (classes // 2 + 1), 1.0


def test_calls_of_the_kernel(monkeypatch):
    monkeypatch.setattr(row_loss, "has_kernel", lambda logits: True)
    monkeypatch.setattr(row_loss, "_core", SimpleNamespace(cross_entropy_cuda=emulated))
    monkeypatch.setattr(row_loss, "current_stream", lambda device: 0)
    for case in cases("cpu"):
        compare(*case)


def test_transforms_take_torchs_own(monkeypatch):
    monkeypatch.setattr(row_loss, "has_kernel", lambda logits: True)
    monkeypatch.setattr(row_loss, "_core", None)
    logits, target = torch.randn(3, 8), torch.tensor([1, 7, 0])

    def loss(given):
        return row_loss.row_losses(given, target).sum()

    wanted = logits.softmax(1) - torch.nn.functional.one_hot(target, 8)
    torch.testing.assert_close(torch.func.grad(loss)(logits), wanted)
    _, forward = torch.func.jvp(loss, (logits,), (logits,))
    torch.testing.assert_close(forward, (wanted * logits).sum())
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits), cross_entropy(logits, target, reduction="sum"))


def test_without_a_kernel():
    for case in cases("cpu"):
        compare(*case)


def test_a_gpu_without_kernels(monkeypatch):
    """An older one, or one for which the build has no code."""
    device = torch.device("cuda", 0)
    logits = SimpleNamespace(numel=lambda: 1, dtype=torch.float32, device=device)
    for why in ("", "compute capability 7.5"):
        monkeypatch.setattr(gpu, "why_not", lambda *_, why=why: why)
        gpu.has_kernels.cache_clear()
        assert row_loss.has_kernel(logits) == (not why)
    gpu.has_kernels.cache_clear()


@pytest.mark.gpu
def test_the_kernel():
    for case in cases("cuda"):
        assert row_loss.has_kernel(case[0])
        compare(*case)


@pytest.mark.gpu
def test_special_values():
    logits = torch.randn(5, 8, device="cuda")
    logits[1, 2], logits[2, 3], logits[4, 4:] = math.nan, -math.inf, -math.inf
    logits = logits.requires_grad_()
    target = torch.tensor([-100, 0, 0, 99, 3], device="cuda")
    losses = row_loss.row_losses(logits, target)
    losses.nan_to_num().sum().backward()
    assert losses[0] == 0 and not logits.grad[0].any()
    assert losses.isnan().tolist() == [False, True, False, True, False]
    assert logits.grad[2, 3] == 0 and logits.grad[2].isfinite().all()
    assert logits.grad[3].isnan().all()
    torch.testing.assert_close(losses[4:], cross_entropy(logits[4:], target[4:], reduction="none"))
