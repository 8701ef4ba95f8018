"""Rows of a table: the calls of the gradient's kernel, and on a GPU the kernel, against torch's embedding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from emulated_cuda import dense, stand_in
from tsm.plugin.layers import embedding, gpu
from tsm.plugin.layers.embedding import embedded
from tsm.plugin.models.inputs import TokenInput


def emulated(device, wide, count, rows, width, tokens, grad, factors, out, stream):
    """The core's function on host memory."""
    given = dense(tokens, count, dtype=torch.int64 if wide else torch.int32)
    found = dense(out, rows, width).zero_()
    found.index_add_(0, given, dense(grad, count, width))
    if factors:
        found *= dense(factors, rows)[:, None]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A GPU, or the host with an emulated kernel."""
    if request.param == "cpu":
        stand_in(monkeypatch, embedding, embedding_gradient_cuda=emulated)
    return request.param


def cases(device):
    """weight, tokens and factors."""
    torch.manual_seed(1)
    for V, E, B, T in ((10_000, 400, 20, 70), (3, 7, 5, 16), (1, 1, 1, 1), (50, 128, 3, 0)):
        weight = torch.randn(V, E).to(device)
        tokens = torch.randint(V, (B, T)).to(device)
        yield weight, tokens.pow(3) % V, None  # neither every token nor equally often
        yield weight, tokens.int(), torch.rand(V).to(device)
        yield weight, tokens.t(), torch.zeros(V, device=device)
    yield torch.randn(700, 1150).to(device), torch.full((48, 64), 699, device=device), None


def gradient(weight, tokens, factors, grad):
    weight = weight.clone().requires_grad_()
    rows = embedded(weight, tokens, factors)
    assert rows.grad_fn.name() == "_EmbeddedBackward"
    rows.backward(grad)
    return rows, weight.grad


def test_the_gradient(device):
    for weight, tokens, factors in cases(device):
        by = torch.ones(len(weight), device=device) if factors is None else factors
        grad = torch.randn(*tokens.shape, weight.shape[1]).to(device)
        rows, found = gradient(weight, tokens, factors, grad)
        assert torch.equal(rows, weight[tokens.long()] * by[tokens.long()][..., None])
        exact = weight.double().requires_grad_()
        (exact[tokens.long()] * by.double()[tokens.long()][..., None]).backward(grad.double())
        torch.testing.assert_close(found.double(), exact.grad, rtol=1e-5, atol=1e-4)
        in_order = torch.zeros(weight.shape)
        for token, row in zip(tokens.flatten().tolist(), grad.flatten(0, 1).cpu(), strict=True):
            in_order[token] += row
        assert torch.equal(found.cpu(), in_order * by.cpu()[:, None])
        assert torch.equal(found, gradient(weight, tokens, factors, grad)[1])


def test_a_gradient_that_is_not_contiguous(device):
    weight, tokens = torch.randn(9, 4, device=device), torch.tensor([[1, 8, 1]], device=device)
    _, found = gradient(weight, tokens, None, torch.ones(4, device=device).expand(1, 3, 4))
    assert found[:, 0].tolist() == [0, 2, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.gpu
def test_tokens_outside_the_table_are_left_out():
    tokens = torch.tensor([2, -1, 5, 2**32 + 1, -(2**63), 2], device="cuda")
    grad, out = torch.ones(6, 3, device="cuda"), torch.full((7, 3), torch.nan, device="cuda")
    gpu._core.embedding_gradient_cuda(
        device=0,
        wide=True,
        count=6,
        rows=5,
        width=3,
        tokens=tokens.data_ptr(),
        grad=grad.data_ptr(),
        factors=0,
        out=out[1:6].data_ptr(),
        stream=gpu.current_stream(grad.device),
    )
    assert out[1:6, 0].tolist() == [0, 0, 2, 0, 0]
    assert out[[0, 6]].isnan().all()


def test_second_derivatives(device):
    for weight, tokens, factors in list(cases(device))[3:6]:
        weight.requires_grad_()
        by = 1 if factors is None else factors[tokens.long()][..., None]
        both = []
        for rows in (embedded(weight, tokens, factors), weight[tokens.long()] * by):
            (first,) = torch.autograd.grad(rows.pow(3).sum(), weight, create_graph=True)
            both += torch.autograd.grad(first.square().sum(), weight)
        torch.testing.assert_close(*both)


def test_a_model_takes_it(device):
    torch.manual_seed(2)
    table = TokenInput(50, 8, dropout=0.5).to(device)
    tokens = torch.randint(50, (4, 30), device=device)
    x = table(tokens, torch.float32)
    assert x.grad_fn.name() == "_EmbeddedBackward"
    x.sum().backward()
    kept = table.weight.grad[tokens.unique()]
    assert kept.any(1).any() and not kept.any(1).all()  # dropped words have no gradient
    frozen = TokenInput(50, 8, frozen=True).to(device)
    assert not frozen(tokens, torch.float32).requires_grad


def test_other_tables_take_torchs_own(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    tokens = torch.zeros(1, 3072, dtype=torch.int64)
    assert embedding.has_kernel(torch.empty(100_000, 1), tokens)
    assert not embedding.has_kernel(torch.empty(100_001, 1), tokens)
    assert not embedding.has_kernel(torch.empty(9, 1), torch.zeros(1, 3073))
    for dtype in (torch.float64, torch.bfloat16):
        assert not embedding.has_kernel(torch.empty(9, 1, dtype=dtype), tokens)
    monkeypatch.undo()
    assert not embedding.has_kernel(torch.empty(9, 1), tokens)  # on the CPU


def test_transforms_take_torchs_own(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    monkeypatch.setattr(embedding, "_core", None)
    weight, tokens, factors = torch.randn(9, 4), torch.tensor([[1, 8, 1]]), torch.rand(9)

    def total(given):
        return embedded(given, tokens, factors).square().sum()

    wanted = 2 * weight * (factors.square() * torch.bincount(tokens[0], minlength=9))[:, None]
    torch.testing.assert_close(torch.func.grad(total)(weight), wanted)
    _, forward = torch.func.jvp(total, (weight,), (weight,))
    torch.testing.assert_close(forward, (wanted * weight).sum())
    compiled = torch.compile(total, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(weight), total(weight).detach())


def test_without_a_kernel_it_is_torchs_embedding():
    weight, tokens = nn.Parameter(torch.randn(9, 4)), torch.tensor([[1, 8, 1]])
    rows = embedded(weight, tokens, None)
    assert rows.grad_fn.name() == "EmbeddingBackward0"
    assert torch.equal(rows, weight[tokens])
