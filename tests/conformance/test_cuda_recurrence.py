"""The layer on a GPU: outputs, states and all gradients against the program in float64."""

from __future__ import annotations

import pytest
import torch

from tolerances import assert_close
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.fused_cuda import takes_teams
from tsm.runtime import _core

pytestmark = pytest.mark.gpu

INPUT = 5
SHAPES = [
    (1, 3, 1),
    (3, 5, 7),
    (20, 10, 154),
    (100, 6, 512),
    (128, 3, 828),
    (20, 5, 1150),
    (1000, 4, 64),
]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def built(cell, hidden, backend, dtype):
    torch.manual_seed(0)
    return Recurrent(cell.name, INPUT, hidden, backend=backend).to("cuda", dtype)


def run(layer, x, state, dt, lengths, grads):
    """(y, last state, gradients) of one forward and backward."""
    x = x.clone().requires_grad_()
    state = {name: value.clone().requires_grad_() for name, value in state.items()}
    y, last = layer(x, state, dt, lengths)
    loss = (y * grads[0]).sum() + sum((last[n] * g).sum() for n, g in grads[1].items())
    leaves = [x, *state.values(), *(p for p in layer.parameters() if p.requires_grad)]
    names = ["x", *state, *(n for n, p in layer.named_parameters() if p.requires_grad)]
    return y, last, dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))


def inputs(cell, batch, steps, hidden, dtype):
    """The same numbers for every dtype: what the lower one holds."""
    torch.manual_seed(1)
    make = {"device": "cuda", "dtype": torch.float64}
    x = torch.randn(batch, steps, INPUT, **make).to(dtype)
    state = {n: (torch.rand(batch, hidden, **make) / 2).float() for n in cell.states}
    grads = (
        torch.randn(batch, steps, hidden, **make).to(dtype),
        {n: torch.randn(batch, hidden, **make).float() for n in cell.states},
    )
    return x, state, grads


def check(cell, shape, dtype, dt=None, lengths=None):
    """Compares with float64; gradients relative to their size, for those of weights are long sums."""
    low = DTYPES[dtype]
    hidden = shape[2]
    x, state, grads = inputs(cell, *shape, low)
    layer = built(cell, hidden, "fused", low)
    exact = built(cell, hidden, "reference", low).double()
    got = run(layer, x, state, dt, lengths, grads)
    want = run(
        exact,
        x.double(),
        {n: s.double() for n, s in state.items()},
        None if dt is None else dt.double(),
        lengths,
        (grads[0].double(), {n: g.double() for n, g in grads[1].items()}),
    )
    assert_close(got[0], want[0], "fused", dtype, "y")
    for name, value in want[1].items():
        assert_close(got[1][name], value, "fused", dtype, f"last {name}")
    for name, value in want[2].items():
        size = value.abs().max().clamp_min(1e-30)
        assert_close(
            got[2][name] / size, value / size, "cuda_gradient", dtype, f"gradient of {name}"
        )
    return layer, (x, state, dt, lengths, grads), got


@pytest.fixture(autouse=True)
def _built_with_cuda():
    assert _core.with_cuda, "a GPU is here, but the core was built without CUDA"
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layer_equals_the_program(compiled_cell, shape, dtype):
    layer, arguments, first = check(compiled_cell, shape, dtype)
    again = run(layer, *arguments)
    assert torch.equal(first[0], again[0]), "y differs from one run to the next"
    for name, value in first[2].items():
        assert torch.equal(value, again[2][name]), f"the gradient of {name} differs between runs"


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_and_time_steps(compiled_cell, dtype):
    batch, steps, hidden = 17, 9, 48
    lengths = torch.arange(batch) % (steps + 1)
    dt = torch.rand(batch, steps, device="cuda") + 0.5 if compiled_cell.takes_dt else None
    check(compiled_cell, (batch, steps, hidden), dtype, dt, lengths)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_split_into_chunks(compiled_cell, dtype):
    x, state, _ = inputs(compiled_cell, 3, 12, 40, DTYPES[dtype])
    layer = built(compiled_cell, 40, "fused", DTYPES[dtype])
    whole, last = layer(x, state)
    parts = []
    for chunk in x.split([5, 1, 0, 6], dim=1):
        y, state = layer(chunk, state)
        parts.append(y)
    assert_close(torch.cat(parts, dim=1), whole, "fused", dtype, "y")
    for name, value in last.items():
        assert_close(state[name], value, "fused", dtype, name)


def test_a_long_sequence(compiled_cell):
    layer = built(compiled_cell, 64, "fused", torch.bfloat16)
    x = torch.randn(8, 10_000, INPUT, device="cuda").bfloat16()
    whole, _ = layer(x)
    first, state = layer(x[:, :9_000])
    rest, _ = layer(x[:, 9_000:], state)
    assert torch.isfinite(whole).all()
    assert_close(torch.cat([first, rest], dim=1), whole, "fused", "bfloat16", "y")


def test_the_papers_sizes_stay_on_the_chip(compiled_cell):
    for batch, hidden in [(128, 128), (128, 160), (100, 512), (128, 832), (20, 1152)]:
        assert takes_teams(compiled_cell.name, torch.bfloat16, batch, hidden), (batch, hidden)


def test_in_a_cuda_graph(compiled_cell):
    layer = built(compiled_cell, 72, "fused", torch.bfloat16)
    x = torch.randn(4, 6, INPUT, device="cuda").bfloat16()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        layer(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y, _ = layer(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    with torch.no_grad():
        expected, _ = layer(x)
    assert torch.equal(y, expected)


def test_under_torch_compile():
    layer = Recurrent("plstm", INPUT, 40, backend="fused").to("cuda", torch.bfloat16)
    x = torch.randn(4, 6, INPUT, device="cuda").bfloat16()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x)[0], layer(x)[0])
