"""The layer on a GPU: outputs, states and all gradients compared with the float64 program."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from tolerances import assert_close
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.gpu import widened
from tsm.runtime import _core

pytestmark = pytest.mark.gpu

INPUT = 5
SHAPES = [
    (1, 3, 1),
    (1, 1, 40),
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
    """(y, last state, gradients) of one forward and backward pass."""
    x = x.clone().requires_grad_()
    state = {name: value.clone().requires_grad_() for name, value in state.items()}
    y, last = layer(x, state, dt, lengths)
    loss = (y * grads[0]).sum() + sum((last[n] * g).sum() for n, g in grads[1].items())
    leaves = [x, *state.values(), *(p for p in layer.parameters() if p.requires_grad)]
    names = ["x", *state, *(n for n, p in layer.named_parameters() if p.requires_grad)]
    return y, last, dict(zip(names, torch.autograd.grad(loss, leaves), strict=True))


def inputs(cell, batch, steps, hidden, dtype):
    """The same numbers for every dtype: those that the least precise one can represent."""
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
    """Compares with float64; errors of gradients are relative to their size, because weight gradients are long
    sums."""
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


# Shapes for every way to run: U in the registers of a block, with padded units; teams of one block, of a
# cluster, and of blocks across the device; more rows than one launch takes.
WAYS = [(17, 9, 38), (131, 11, 117), (600, 5, 64), (20, 9, 154), (100, 9, 512)]
WAYS += [(128, 5, 828), (300, 4, 828)]
# Fewer rows than a row tile: a cluster, a grid.
WAYS += [(3, 7, 300), (5, 5, 1000)]


@pytest.mark.parametrize("shape", WAYS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_and_time_steps(compiled_cell, dtype, shape):
    batch, steps, _ = shape
    lengths = torch.arange(batch) % (steps + 1)
    dt = torch.rand(batch, steps, device="cuda") + 0.5 if compiled_cell.takes_dt else None
    check(compiled_cell, shape, dtype, dt, lengths)


@pytest.fixture
def on_9_0():
    """Streaming, cuts of k and parts of such a device exist only there."""
    if "bulk copies" not in _core.recurrence_cuda_path(device=0):
        pytest.skip("this GPU is not of compute capability 9.0, which the plans under test need")


# U does not fit into shared memory and the batch has few rows: a part of U is read in every step.
STREAMED = [(1, 7, 3072), (5, 4, 3300), (16, 5, 3080)]


@contextmanager
def planned(word, cell, dtype, batch, hidden, directions=(False, True), most=40):
    """A layer of that size runs by the best plan with this word in its description."""
    how = {"cell": cell.name, "dtype": dtype, "device": 0, "batch": batch}
    how |= {"hidden": widened(hidden)}
    both = [how | {"backward": back} for back in directions]
    for one in both:
        ranks = range(-1, most)  # -1: steps; if they are also 0, the best team is 1
        assert any(word in _core.recurrence_cuda_take_plan(**one, rank=rank) for rank in ranks)
    try:
        yield
    finally:
        for one in both:
            _core.recurrence_cuda_take_plan(**one, rank=0)


def check_all(cell, shape, dtype):
    """Whole rows, twice with the same bits; then rows of several lengths with time steps."""
    batch, steps, _ = shape
    layer, arguments, first = check(cell, shape, dtype)
    again = run(layer, *arguments)
    assert torch.equal(first[0], again[0]), "y differs from one run to the next"
    for name, value in first[2].items():
        assert torch.equal(value, again[2][name]), f"the gradient of {name} differs"
    lengths = torch.arange(batch) % (steps + 1)
    dt = torch.rand(batch, steps, device="cuda") + 0.5 if cell.takes_dt else None
    check(cell, shape, dtype, dt, lengths)


@pytest.mark.parametrize("shape", STREAMED, ids=str)
def test_streamed(on_9_0, compiled_u_cell, shape):
    batch, _, hidden = shape
    with planned("streamed", compiled_u_cell, "bfloat16", batch, hidden):
        check_all(compiled_u_cell, shape, "bfloat16")


# Neighbours cut k, with 2, 3 and 4 row tiles per warp: all chunks of a step have their stage, stages are
# refilled, or hold parts of slices; more rows than one launch takes; members without units.
CUTS = [(16, 9, 1200), (20, 9, 1150), (128, 7, 828), (300, 4, 828), (17, 9, 154), (33, 40, 40)]


@pytest.mark.parametrize("cut", [2, 4])
@pytest.mark.parametrize("shape", CUTS, ids=str)
def test_neighbours_cut_k(on_9_0, compiled_u_cell, shape, cut):
    batch, _, hidden = shape
    how = {"directions": (True,), "most": 1000}
    with planned(f"cut {cut}", compiled_u_cell, "bfloat16", batch, hidden, **how):
        check_all(compiled_u_cell, shape, "bfloat16")


# U in the registers of a block, for up to 64 and up to 128 units; with many gates, a part of it in shared
# memory. More blocks than the device runs at once.
IN_REGISTERS = [(1, 7, 64), (3, 5, 7), (17, 9, 38), (600, 5, 64), (5, 7, 128), (131, 5, 117)]


@pytest.mark.parametrize("shape", IN_REGISTERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_registers(compiled_u_cell, dtype, shape):
    batch, _, hidden = shape
    with planned("registers", compiled_u_cell, dtype, batch, hidden):
        check_all(compiled_u_cell, shape, dtype)


# The last two are large: a thread has four units. Of them, one has rows of dy that begin at any pair of units.
STEPS = [(1, 3, 1), (3, 5, 7), (17, 9, 38), (20, 9, 154), (300, 4, 828), (1009, 4, 130)]


@pytest.mark.parametrize("shape", STEPS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_step_by_step(compiled_u_cell, dtype, shape):
    batch, _, hidden = shape
    with planned("steps", compiled_u_cell, dtype, batch, hidden):
        check_all(compiled_u_cell, shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_step_by_step_in_a_cuda_graph(representative_cell, dtype):
    if not representative_cell.gates_of("h"):
        pytest.skip("no U, so no steps")
    with planned("steps", representative_cell, dtype, 20, 154):
        test_in_a_cuda_graph(representative_cell, dtype, (20, 9, 154))


# Devices without clusters and bulk copies, by what they have (TSM_CUDA_PRETEND): all of this one's
# multiprocessors and shared memory, then A100, L40S, L4, RTX 5090.
LIKE = ["8.0", "8.0,108,163", "8.9,142,99", "8.9,58,99", "12.0,170,99"]


@contextmanager
def pretended(like):
    before = _core.plan_version()
    _core.recurrence_cuda_pretend(like=like)
    assert _core.plan_version() > before, "launches with the old plans would be kept"
    try:
        yield
    finally:
        _core.recurrence_cuda_pretend(like="")


@pytest.fixture(params=LIKE)
def other_device(request):
    with pretended(request.param):
        yield


OTHERS = [*WAYS, (20, 7, 1150), (20, 7, 700)]


def plans_of(name, dtype, shape):
    how = {
        "cell": name,
        "dtype": dtype,
        "device": 0,
        "batch": shape[0],
        "hidden": widened(shape[2]),
    }
    return [_core.recurrence_cuda_plan(**how, backward=back)[0] for back in (False, True)]


@pytest.mark.parametrize("shape", OTHERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["janet", "plstm", "lstm_refine"])  # 2, 3 and 5 gates
def test_like_another_device(other_device, name, dtype, shape):
    for words in plans_of(name, dtype, shape):
        assert "cluster" not in words
        assert "grid" not in words or "without bulk copies" in words
    check_all(get_cell(name), shape, dtype)


# Parts of a 9.0: what a process sees of a GPU that NVIDIA MPS or MIG divides.
PARTS = ["9.0,82", "9.0,74", "9.0,60", "9.0,33"]


@pytest.mark.parametrize("shape", [*OTHERS, (20, 7, 400)], ids=str)
@pytest.mark.parametrize("name", ["janet", "plstm", "lstm", "lstm_refine"])  # 2 to 5 gates
@pytest.mark.parametrize("like", PARTS)
def test_on_a_part_of_the_device(on_9_0, like, name, shape):
    with pretended(like):
        check_all(get_cell(name), shape, "bfloat16")


@pytest.mark.parametrize("like", ["9.0,60", "9.0,33"])
def test_parts_of_the_device_have_other_plans(on_9_0, like):
    whole = plans_of("lstm", "bfloat16", (100, 9, 512))
    with pretended(like):
        assert plans_of("lstm", "bfloat16", (100, 9, 512)) != whole


def test_other_devices_have_grids(other_device):
    """The tests above would also pass if all of them ran step by step."""
    plans = [words for shape in OTHERS for words in plans_of("plstm", "bfloat16", shape)]
    assert any("grid without bulk copies" in words for words in plans), plans


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_layer_that_does_not_fit(representative_cell, dtype):
    check(representative_cell, (17, 3, 4000), dtype)


# Layers whose h or dz does not fit into shared memory at once, at least for some cells, so that stages are
# refilled.
REFILLED = [("float32", (100, 9, 512)), ("float32", (128, 7, 828))]
REFILLED += [("bfloat16", (128, 7, 828)), ("bfloat16", (20, 7, 1150)), ("bfloat16", (80, 5, 1150))]
# Layers whose U is streamed, at least in cells with four gates.
REFILLED += [("bfloat16", (1, 7, 2048)), ("bfloat16", (16, 5, 2304))]
# Small layers, for which there are plans of nearly every kind.
SMALL = [("bfloat16", (17, 7, 48)), ("bfloat16", (9, 7, 128)), ("float32", (17, 7, 64))]


@pytest.mark.parametrize("rank", [0, 2, 5, 9])
@pytest.mark.parametrize(("dtype", "shape"), REFILLED + SMALL, ids=str)
def test_any_plan(representative_cell, dtype, shape, rank):
    """A plan that is not the planner's first choice may be slower, but not wrong."""
    batch, hidden = shape[0], widened(shape[2])
    name = representative_cell.name
    if not representative_cell.gates_of("h"):
        pytest.skip("a cell without U has no plan")

    def take(rank):
        """Whether a plan of this rank exists in at least one direction."""
        how = {"cell": name, "dtype": dtype, "device": 0, "batch": batch, "hidden": hidden}
        plans = [
            _core.recurrence_cuda_take_plan(**how, backward=back, rank=rank)
            for back in (False, True)
        ]
        return any(plans)

    try:
        if not take(rank):
            pytest.skip(f"the planner has no plan of rank {rank} for this layer")
        check(representative_cell, shape, dtype)
    finally:
        take(0)


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


@pytest.mark.parametrize(
    ("dtype", "hidden"),
    [("float32", h) for h in (64, 160, 512)] + [("bfloat16", h) for h in (64, 160, 512, 832)],
)
def test_a_long_sequence(representative_cell, dtype, hidden):
    layer = built(representative_cell, hidden, "fused", DTYPES[dtype])
    x = torch.randn(8, 10_000, INPUT, device="cuda").to(DTYPES[dtype])
    whole, _ = layer(x)
    first, state = layer(x[:, :9_000])
    rest, _ = layer(x[:, 9_000:], state)
    assert torch.isfinite(whole).all()
    assert_close(torch.cat([first, rest], dim=1), whole, "fused", dtype, "y")


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", shape) for shape in [(17, 48), (128, 128), (128, 160), (100, 512), (1, 512)]]
    + [
        ("bfloat16", shape)
        for shape in [(128, 128), (128, 160), (100, 512), (128, 832), (20, 1152)]
    ],
    ids=str,
)
def test_the_papers_sizes_stay_on_the_chip(compiled_u_cell, dtype, shape):
    """There is a plan with teams; for cells with many gates steps may still be faster."""
    batch, hidden = shape
    how = {
        "cell": compiled_u_cell.name,
        "dtype": dtype,
        "device": 0,
        "batch": batch,
        "hidden": hidden,
    }
    for backward in (False, True):
        plans = [
            _core.recurrence_cuda_take_plan(**how, backward=backward, rank=rank) for rank in (1, 0)
        ]
        assert set(plans) - {"", "steps"}


@pytest.mark.parametrize("shape", WAYS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_a_cuda_graph(representative_cell, dtype, shape):
    batch, steps, hidden = shape
    layer = built(representative_cell, hidden, "fused", DTYPES[dtype])
    x = torch.randn(batch, steps, INPUT, device="cuda").to(DTYPES[dtype]).requires_grad_()

    def run_once():
        layer.zero_grad(set_to_none=True)
        x.grad = None
        y, _ = layer(x)
        y.backward(torch.ones_like(y))
        return y

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run_once()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run_once()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    found = [y.clone(), x.grad.clone(), layer.weight_h.grad.clone()]
    expected = [run_once(), x.grad, layer.weight_h.grad]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_what_lies_oddly_in_memory(representative_cell, dtype):
    """A transposed U and a gradient not aligned to 16 bytes change nothing."""
    layer = built(representative_cell, 48, "fused", dtype)
    x = torch.randn(4, 6, INPUT, device="cuda").to(dtype)
    y, _ = layer(x)
    (expected,) = torch.autograd.grad(y.sum(), [layer.weight_h])
    layer.weight_h = torch.nn.Parameter(layer.weight_h.detach().t().contiguous().t())
    y, _ = layer(x)
    odd = torch.cat([torch.ones(3, device="cuda").to(dtype), y.reshape(-1)])
    (found,) = torch.autograd.grad(odd.sum(), [layer.weight_h])
    assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", WAYS, ids=str)
def test_backward_twice(representative_cell, shape, dtype):
    """A second backward through a retained graph gives the same bits, also inside autocast."""
    batch, steps, hidden = shape
    layer = built(representative_cell, hidden, "fused", DTYPES[dtype])
    x = torch.randn(batch, steps, INPUT, device="cuda").to(DTYPES[dtype]).requires_grad_()
    y, _ = layer(x)
    total, leaves = y.sum(), [x, *(p for p in layer.parameters() if p.requires_grad)]
    first = torch.autograd.grad(total, leaves, retain_graph=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        again = torch.autograd.grad(total, leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_state_on_another_device_is_refused(representative_cell):
    layer = built(representative_cell, 48, "fused", torch.bfloat16)
    x = torch.randn(4, 6, INPUT, device="cuda").bfloat16()
    state = {name: torch.zeros(4, 48) for name in representative_cell.states}
    with pytest.raises(ValueError, match="cpu"):
        layer(x, state)


@pytest.mark.parametrize("dtype", DTYPES)
def test_under_torch_compile(dtype):
    layer = Recurrent("plstm", INPUT, 40, backend="fused").to("cuda", DTYPES[dtype])
    x = torch.randn(4, 6, INPUT, device="cuda").to(DTYPES[dtype])
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    y, expected = compiled(x)[0], layer(x)[0]
    assert_close(y, expected, "fused", dtype, "y")
    (found,) = torch.autograd.grad(y.sum(), [layer.weight_h])
    (wanted,) = torch.autograd.grad(expected.sum(), [layer.weight_h])
    size = wanted.abs().max()
    assert_close(found / size, wanted / size, "cuda_gradient", dtype, "gradient of weight_h")
