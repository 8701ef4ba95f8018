"""The cell nru on a GPU: outputs, states and all gradients compared with the float64 formula. Without a GPU,
the layer's Python code runs over an emulated core (emulated_cuda.py); tests/cpp/kernels/test_nru.cc runs the
kernels' code."""

from __future__ import annotations

import pytest
import torch

import emulated_cuda
from tolerances import TOLERANCES, assert_close
from tsm.plugin.layers import Recurrent, nru_cuda
from tsm.plugin.layers import over_time as chosen
from tsm.plugin.layers.choose import Route

INPUT = 5
# B, T, H, memory_size, heads
SHAPES = [(1, 1, 3, 1, 1), (3, 5, 7, 9, 4), (5, 12, 40, 16, 4), (2, 3, 24, 64, 1)]
LARGE = [(100, 6, 512, 144, 4), (20, 4, 1150, 256, 4), (300, 3, 128, 64, 4)]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.fixture(params=["emulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, monkeypatch):
    """Layers on this device run in `nru_cuda`."""
    if request.param == "cuda":
        yield "cuda"
        return
    emulated_cuda.install(monkeypatch)
    monkeypatch.setattr(chosen, "choose", lambda *_: Route("nru_cuda"))
    yield "cpu"
    nru_cuda._prepared.cache_clear()


def built(shape, device, dtype, backend="auto", **options):
    torch.manual_seed(0)
    sizes = {"memory_size": shape[3], "heads": shape[4]}
    return Recurrent("nru", INPUT, shape[2], backend=backend, **sizes, **options).to(device, dtype)


def run(layer, x, state, lengths, grads):
    """(y, last states, gradients by name); None for a gradient: that output is not used."""
    x = x.clone().requires_grad_()
    state = {name: value.clone().requires_grad_() for name, value in state.items()}
    y, last = layer(x, state or None, lengths=lengths)
    found = {"y": y, **last}
    loss = sum((found[name] * g).sum() for name, g in grads.items())
    leaves = {
        "x": x,
        **{f"first {n}": s for n, s in state.items()},
        **dict(layer.named_parameters()),
    }
    made = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return found, dict(zip(leaves, made, strict=True))


def check(device, shape, dtype, layer_norm=False, lengths=None, carried=True, used=("y", "h", "m")):
    """float32: errors of gradients are relative to the largest element, because gradients of weights are long
    sums. bfloat16: in the mean square, and compared with the error of the reference in bfloat16. Where relu
    turns off in one of the two only, single numbers differ by a third."""
    low = DTYPES[dtype]
    batch, steps, hidden, memory, _ = shape
    layer = built(shape, device, low, layer_norm=layer_norm)
    plain = built(shape, device, low, "reference", layer_norm=layer_norm)
    exact = built(shape, device, low, "reference", layer_norm=layer_norm).double()
    draw = torch.Generator().manual_seed(1)

    def number(*sizes):
        return torch.randn(*sizes, generator=draw, dtype=torch.float64)

    widths = {"y": (batch, steps, hidden), "h": (batch, hidden), "m": (batch, memory)}
    x = number(batch, steps, INPUT).to(device, low)
    state = {n: number(*widths[n]).to(device).float() for n in "hm"} if carried else {}
    grads = {n: number(*widths[n]).to(device, low if n == "y" else torch.float32) for n in used}
    lengths = None if lengths is None else torch.tensor(lengths, device=device)
    got, of_got = run(layer, x, state, lengths, grads)
    want, of_want = run(
        exact,
        x.double(),
        {n: s.double() for n, s in state.items()},
        lengths,
        {n: g.double() for n, g in grads.items()},
    )
    assert got["y"].dtype == low and got["m"].dtype == torch.float32
    if dtype == "bfloat16":
        usual, of_usual = run(plain, x, state, lengths, grads)
        everything = {**want, **of_want}
        check_error({**got, **of_got}, {**usual, **of_usual}, everything)
        return
    for name, value in want.items():
        assert_close(got[name], value, "fused", dtype, name)
    for name, value in of_want.items():
        if value is None:
            assert of_got[name] is None or not of_got[name].any(), name
            continue
        scale = value.abs().max().clamp(min=1)
        assert_close(of_got[name] / scale, value / scale, "cuda_gradient", dtype, f"d {name}")


def check_error(found, usual, exact):
    tolerance = TOLERANCES["nru_cuda", "bfloat16"]
    assert worst(found, exact) <= tolerance.absolute + tolerance.relative * worst(usual, exact)


def worst(found, expected):
    """The largest |found - expected| / |expected| of a tensor, in the 2-norm."""
    pairs = [(found[name].double(), value) for name, value in expected.items() if value is not None]
    return max(float(((a - b).norm() / b.norm().clamp(min=1)).detach()) for a, b in pairs)


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_formula(device, shape, layer_norm):
    check(device, shape, "float32", layer_norm)


@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("shape", [(20, 6, 128, 36, 4), (50, 6, 250, 64, 4)], ids=str)
def test_bfloat16(device, shape, layer_norm):
    check(device, shape, "bfloat16", layer_norm)


@pytest.mark.gpu
@pytest.mark.parametrize("layer_norm", [False, True], ids=["plain", "normed"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_larger_layers(shape, dtype, layer_norm):
    check("cuda", shape, dtype, layer_norm)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_length(device, dtype):
    lengths = [5, 0, 1, 4, 2, 3] * 3
    for layer_norm in (False, True):
        check(device, (18, 5, 96, 16, 4), dtype, layer_norm, lengths)


@pytest.mark.parametrize("used", [("y",), ("h",), ("m",)], ids=str)
def test_one_output_is_used(device, used):
    check(device, (3, 4, 16, 9, 4), "float32", carried=False, used=used)
    check(device, (3, 4, 16, 9, 4), "float32", lengths=[4, 0, 2], used=used)


def test_under_autocast(device):
    shape = (20, 6, 128, 36, 4)
    x, found = torch.randn(20, 6, INPUT, device=device), []
    for backend, dtype in (("auto", "float32"), ("reference", "float32"), ("reference", "float64")):
        layer = built(shape, device, getattr(torch, dtype), backend)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=dtype == "float32"):
            y, last = layer(x.to(layer.weight_x.dtype))
        (y.float().square().sum() + last["m"].sum()).backward()
        assert dtype == "float64" or y.dtype == torch.bfloat16
        gradients = {name: p.grad for name, p in layer.named_parameters()}
        assert dtype == "float64" or gradients["weight_h"].dtype == torch.float32
        found.append({"y": y, **last, **gradients})
    check_error(*found)


def test_two_backward_passes_and_a_second_derivative(device):
    layer = built((2, 3, 8, 4, 4), device, torch.float32)
    x = torch.randn(2, 3, INPUT, device=device, requires_grad=True)
    y, _ = layer(x)
    once, again = (torch.autograd.grad(y.sum(), x, retain_graph=True) for _ in range(2))
    assert torch.equal(*once, *again)
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_what_lies_past_a_length_does_not_matter(device):
    layer = built((3, 5, 8, 4, 4), device, torch.float32)
    lengths = torch.tensor([2, 5, 0], device=device)
    x = torch.randn(3, 5, INPUT, device=device)
    spoilt = x.clone()
    spoilt[0, 2:], spoilt[2] = float("nan"), float("inf")
    found = []
    for given in (x, spoilt):
        y, last = layer(given, lengths=lengths)
        loss = y.sum() + last["m"].sum()
        found.append([y, *torch.autograd.grad(loss, [layer.weight_h, layer.weight_write])])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_captured_in_a_graph(dtype):
    """The replay on other inputs gives the bits of a plain call."""
    low, shape = DTYPES[dtype], (20, 30, 64, 36, 4)
    layer = built(shape, "cuda", low, layer_norm=True)
    x, other = (torch.randn(20, 30, INPUT, device="cuda", dtype=low) for _ in range(2))
    lengths = torch.full((20,), 30, device="cuda")

    def step():
        y, last = layer(x, lengths=lengths)
        loss = y.float().square().sum() + last["m"].sum()
        return [y, *torch.autograd.grad(loss, list(layer.parameters()))]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    x.copy_(other)
    lengths[:5] = torch.arange(5, device="cuda")
    graph.replay()
    for found, expected in zip(captured, step(), strict=True):
        assert torch.equal(found, expected)
