"""Links between raw parameters and a cell's per-unit values: their gradients equal those of autograd."""

import pytest
import torch

from tsm.plugin.layers import parameters
from tsm.plugin.layers.gpu import current_stream
from tsm.plugin.layers.sketch import Sketch

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


@pytest.mark.gpu
@pytest.mark.parametrize("units", [1, 31, 154, 1150])
@pytest.mark.parametrize("rows", [1, 20, 33, 1024])
@pytest.mark.parametrize("links", [*([link] for link in LINKS), LINKS], ids=str)
def test_on_a_gpu(links, rows, units):
    """Values and gradients in one launch each, as torch computes them."""
    torch.manual_seed(0)
    pitch, count, sketch = units + 3, len(links), Sketch(0)
    raw = [torch.randn(units, 2, device="cuda")[:, n % 2] for n in range(count)]
    raw[-1] = raw[-1].bfloat16()
    values, of_raw = (
        torch.zeros(count, pitch, device="cuda"),
        torch.zeros(count, units, device="cuda"),
    )
    by_row = torch.randn(count, rows, pitch, device="cuda")
    arrays = [*raw, values, by_row, of_raw]
    *sources, to, rows_of, found = (sketch.array(t.dtype, t.shape, t.stride()) for t in arrays)
    sketch.link_vectors(to, sources, links)
    sketch.vector_gradients(rows_of, to, found, links)
    sketch.launches.run(tuple(t.data_ptr() for t in arrays), current_stream(raw[0].device))
    for n, (link, r) in enumerate(zip(links, raw, strict=True)):
        want = parameters.value_of(link, r).float()
        tolerance = 1e-2 if r.dtype == torch.bfloat16 else 1e-6  # a unit in the last place
        assert torch.allclose(values[n, :units], want, rtol=tolerance, atol=0)
        exact = by_row[n, :, :units].double().sum(0)
        want = parameters.raw_gradient(link, exact, values[n, :units].double())
        assert torch.allclose(of_raw[n].double(), want, rtol=1e-5, atol=1e-5 * want.abs().max())
    assert (values[:, units:] == 1).all()
