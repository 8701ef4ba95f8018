"""Links between raw parameters and a cell's per-unit values: their gradients equal those of autograd."""

import pytest
import torch

from tsm.plugin.layers import parameters

LINKS = list(parameters._LINKS)


@pytest.mark.parametrize("link", LINKS)
def test_gradient(link):
    raw = torch.randn(9, dtype=torch.float64, requires_grad=True)
    gradient = torch.randn(9, dtype=torch.float64)
    value = parameters.value_of(link, raw)
    (want,) = torch.autograd.grad(value, raw, gradient)
    assert torch.allclose(parameters.raw_gradient(link, gradient, value.detach()), want, rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("links", [[], *([link] for link in LINKS), LINKS], ids=str)
def test_any_number_of_them_as_one_array(links, dtype):
    """One array for all links, as the core reads values and writes gradients."""
    raw = [torch.randn(5).to(dtype).requires_grad_() for _ in links]
    each = [parameters.value_of(link, r).float() for link, r in zip(links, raw, strict=True)]
    with torch.no_grad():
        packed = parameters.values_of(links, raw, torch.float32)
    if not links:
        assert packed is None and parameters.raw_gradients(links, None, None) == []
        return
    assert torch.equal(packed, torch.cat(each))
    gradient = torch.randn(5 * len(links))
    found = parameters.raw_gradients(links, gradient, packed)
    want = torch.autograd.grad(torch.cat(each), raw, gradient)
    for one, other in zip(found, want, strict=True):
        assert torch.allclose(one, other.float(), rtol=1e-6 if dtype == torch.float32 else 2e-2)
