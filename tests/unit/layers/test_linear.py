"""The output layer under autocast: the core's launches, emulated or on a GPU, against torch's linear."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import emulated_cuda
from tsm.plugin import build_model
from tsm.plugin.layers import gpu, linear


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """A GPU, or the host with emulated launches."""
    if request.param == "cpu":
        emulated_cuda.install(monkeypatch)
        monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
        linear._forward.cache_clear()
        linear._backward.cache_clear()
    yield request.param
    linear._forward.cache_clear()
    linear._backward.cache_clear()


def autocast(device):
    return torch.autocast(device, dtype=torch.bfloat16)


def cases(device):
    """x, weight and bias."""
    torch.manual_seed(1)
    for shape, inputs, outputs in (((3, 5), 7, 16), ((40,), 16, 8), ((2, 70), 400, 10_000)):
        x = torch.randn(*shape, inputs).to(device)
        weight, bias = torch.randn(outputs, inputs).to(device), torch.randn(outputs).to(device)
        yield x, weight / inputs**0.5, bias
        yield x.bfloat16(), weight / inputs**0.5, bias
    wide = torch.randn(4, 6, 24, device=device)
    yield wide[:, 1:, 3:11], torch.randn(8, 16, device=device)[:, ::2], torch.ones(8, device=device)


def taken(out):
    """Whether the core computed it."""
    return (
        out.grad_fn.name() == "ViewBackward0"
        and "_Linear" in out.grad_fn.next_functions[0][0].name()
    )


def check(x, weight, bias, device):
    """Against exact products of the rounded numbers."""
    given = [t.to(device) for t in (x, weight, bias)]
    leaves = [t.detach().requires_grad_() for t in given]
    with autocast(device):
        out = linear.linear(*leaves)
    assert taken(out) and out.dtype == torch.bfloat16
    exact = [t.detach().bfloat16().double().requires_grad_() for t in given]
    wanted = nn.functional.linear(*exact)
    close(out, wanted)
    grad = torch.randn_like(out)
    wanted.backward(grad.double())
    for found, leaf, e in zip(torch.autograd.grad(out, leaves, grad), leaves, exact, strict=True):
        assert found.dtype == leaf.dtype and found.is_contiguous()
        close(found, e.grad)


def close(found, wanted):
    """Rounded once to bfloat16, from a sum in float32."""
    scale = wanted.abs().max().item()
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=1e-5 * scale)


def test_as_exact_products_of_the_rounded_numbers(device):
    for given in cases(device):
        check(*given, device)


def test_only_what_is_needed(device):
    x, weight, bias = next(cases(device))
    every = [t.requires_grad_() for t in (x, weight, bias)]
    with autocast(device):
        out = linear.linear(*every)
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(out, every, grad)
    for needed in ([0], [1], [2], [0, 2], [1, 2]):
        some = [t.detach().requires_grad_(i in needed) for i, t in enumerate(every)]
        with autocast(device):
            out = linear.linear(*some)
        out.backward(grad)
        for i, t in enumerate(some):
            assert t.grad is None if i not in needed else torch.equal(t.grad, wanted[i])
    with torch.no_grad(), autocast(device):
        assert torch.equal(linear.linear(*every), out)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 127, 128, 129, 190, 500, 1023, 1024, 1100, 2300, 9000])
def test_rows_for_which_another_algorithm_may_be_chosen(rows):
    """cublasLt chooses it for rounded numbers of rows."""
    for inputs, outputs in ((400, 1000), (33, 24), (1150, 64)):
        check(torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs), "cuda")


def test_without_gradients_later(device):
    given = next(cases(device))
    with torch.inference_mode(), autocast(device):
        found = linear.linear(*given)
    with autocast(device):
        out = linear.linear(*(t.requires_grad_() for t in given))
    assert torch.equal(found, out)
    again = [torch.autograd.grad(out.float().sum(), given, retain_graph=True) for _ in range(2)]
    assert all(map(torch.equal, *again))
    with pytest.raises(RuntimeError, match="once_differentiable"):
        (first,) = torch.autograd.grad(out.float().square().sum(), given[0], create_graph=True)
        first.sum().backward()


def test_a_gradient_that_is_not_dense_and_replaced_tensors(device):
    leaves = [t.requires_grad_() for t in next(cases(device))]

    def strided(saved):
        return torch.empty(*saved.shape, 2, dtype=saved.dtype, device=saved.device)[..., 0].copy_(
            saved
        )

    with autocast(device):
        out = linear.linear(*leaves)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, strided):
            hooked = linear.linear(*leaves)
    grad = torch.randn(*out.shape[::-1], device=device).bfloat16().permute(2, 1, 0)
    wanted = torch.autograd.grad(out, leaves, grad.contiguous())
    for found, same in zip(torch.autograd.grad(hooked, leaves, grad), wanted, strict=True):
        assert torch.equal(found, same)


def test_models_take_it_under_autocast(device):
    model = build_model("plstm_lm", vocab_size=24, decoder_embed_dim=6, decoder_hidden_size=8)
    dropped = torch.randn(2, 3, 8, device=device)
    model.decoder.to(device)
    with autocast(device):
        assert taken(model.head(dropped))
    assert not taken(model.head(dropped))


def test_other_arrays_take_torchs_own(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    x, weight, bias = torch.randn(2, 3, 4), torch.randn(8, 4), torch.randn(8)
    assert not linear.has_kernels(x, weight, bias)  # without autocast
    with autocast("cpu"):
        assert linear.has_kernels(x, weight, bias)
        assert not linear.has_kernels(x[:0], weight, bias)
        assert not linear.has_kernels(x[0, 0], weight, bias)
        assert not linear.has_kernels(x, weight[:7], bias[:7])
        assert not linear.has_kernels(x, weight.bfloat16(), bias)
        assert not linear.has_kernels(x.double(), weight, bias)
        assert not linear.has_kernels(x, weight, bias[:1])
        assert not linear.has_kernels(x, weight[0], bias)
        assert not linear.has_kernels(x, weight[:, :3], bias)
        for negated in ((x, weight._neg_view(), bias), (x, weight, bias._neg_view())):
            assert not linear.has_kernels(*negated)
        monkeypatch.undo()
        assert not linear.has_kernels(x, weight, bias)  # on the CPU
    with torch.autocast("cpu", dtype=torch.float16):
        assert not linear.has_kernels(x, weight, bias)


def test_transforms_take_torchs_own(monkeypatch):
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    weight, bias = torch.randn(8, 4), torch.randn(8)

    def total(x):
        with autocast("cpu"):
            return linear.linear(x, weight, bias).float().sum()

    x = torch.randn(3, 4)
    found = torch.func.grad(total)(x)
    torch.testing.assert_close(found, weight.sum(0).expand(3, 4), rtol=2e-2, atol=2e-2)
    compiled = torch.compile(total, backend="eager", fullgraph=True)
    found = compiled(x)
    monkeypatch.undo()
    torch.testing.assert_close(found, total(x))
