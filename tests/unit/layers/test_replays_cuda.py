"""Eager calls on a GPU whose launches are replayed as CUDA graphs: the same bits as without graphs, whatever
the contents of the arrays."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent, layer_cuda
from tsm.runtime import _core

pytestmark = pytest.mark.gpu

INPUT, BATCH, STEPS, HIDDEN = 5, 20, 9, 152
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CELLS = ["lstm", "plstm", "lstm_refine", "nru"]
FEWEST = 8
UPDATES = 6


@pytest.fixture(autouse=True)
def _replayed():
    torch.backends.cuda.matmul.allow_tf32 = False
    _core.cuda_replay_from(launches=FEWEST)
    yield
    _core.cuda_replay_from(launches=0)


def built(cell, dtype="bfloat16", hidden=HIDDEN):
    """A layer that runs step by step."""
    torch.manual_seed(0)
    options = {"memory_size": 36, "heads": 4} if cell == "nru" else {}
    layer = Recurrent(cell, INPUT, hidden, **options).to("cuda", DTYPES[dtype])
    if cell != "nru":
        how = {"cell": cell, "dtype": dtype, "device": 0, "batch": BATCH, "hidden": hidden}
        for backward in (False, True):
            plan = _core.recurrence_cuda_take_plan(**how, backward=backward, rank=-1)
            assert plan == "steps"
    return layer


def inputs(dtype="bfloat16", steps=STEPS, batch=BATCH, count=UPDATES):
    torch.manual_seed(1)
    return torch.randn(count, batch, steps, INPUT, device="cuda").to(DTYPES[dtype])


def update(layer, x, **rest):
    """y, last states and gradients, on the host: what stays on the device would change later addresses."""
    x.grad = None
    layer.zero_grad(set_to_none=True)
    y, last = layer(x, **rest)
    (y.float().square().sum() + sum(state.sum() for state in last.values())).backward()
    gradients = [p.grad for p in layer.parameters() if p.grad is not None]
    return [t.detach().cpu() for t in (y, *last.values(), x.grad, *gradients)]


def updates(layer, contents, **rest):
    """An update for each of `contents`, all in the same arrays."""
    x = torch.zeros_like(contents[0]).requires_grad_()
    found = []
    for one in contents:
        x.data.copy_(one)
        found.append(update(layer, x, **rest))
    return found


def without_graphs(call):
    _core.cuda_replay_from(launches=0)
    try:
        return call()
    finally:
        _core.cuda_replay_from(launches=FEWEST)


def replayed(call):
    """(what it returns, how many directions of layers were replayed)."""
    before = _core.cuda_replays()[1]
    found = call()
    return found, _core.cuda_replays()[1] - before


def assert_same(found, expected):
    for n, (one, other) in enumerate(zip(found, expected, strict=True)):
        same = [torch.equal(a, b) for a, b in zip(one, other, strict=True)]
        assert all(same), f"update {n}: {same}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CELLS)
def test_same_bits(name, dtype):
    layer, contents = built(name, dtype), inputs(dtype)
    expected, none = replayed(lambda: without_graphs(lambda: updates(layer, contents)))
    found, count = replayed(lambda: updates(layer, contents))
    assert none == 0
    assert count >= 2 * (UPDATES - 3), "the addresses did not come again"
    assert_same(found, expected)


@pytest.mark.parametrize("name", CELLS)
def test_lengths_and_time_steps_change(name):
    """They are read when a graph runs, not when it is captured."""
    layer, x = built(name), inputs()[0].requires_grad_()
    rest = {"lengths": torch.zeros(BATCH, dtype=torch.int64, device="cuda")}
    if get_cell(name).takes_dt:
        rest["dt"] = torch.ones(BATCH, STEPS, device="cuda")

    def run():
        found = []
        for n in range(UPDATES):
            rest["lengths"].copy_((torch.arange(BATCH) + n) % (STEPS + 1))
            if "dt" in rest:
                rest["dt"].fill_(1 + n / 4)
            found.append(update(layer, x, **rest))
        return found

    expected = without_graphs(run)
    assert not torch.equal(expected[0][0], expected[1][0])
    found, count = replayed(run)
    assert count >= 2 * (UPDATES - 3)
    assert_same(found, expected)


def test_weights_change():
    """An optimizer changes all of them in every update, and U has a dropout mask."""

    def run():
        layer = built("lstm", "float32")
        layer.weight_dropout = 0.2
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x = inputs("float32")[0].requires_grad_()
        found = []
        for _ in range(UPDATES):
            found.append(update(layer, x))
            optimizer.step()
        return found

    expected = without_graphs(run)
    assert not torch.equal(expected[0][0], expected[1][0])
    found, count = replayed(run)
    assert count >= 2 * (UPDATES - 3)
    assert_same(found, expected)


def test_layers_of_the_same_size():
    """They share their launches, but not their arrays."""

    def run():
        layers = [built("lstm") for _ in range(5)]
        for n, layer in enumerate(layers):
            layer.weight_h.data.mul_(1 + n / 8)
        x, found = inputs()[0][..., :1].repeat(1, 1, HIDDEN), []
        first = torch.nn.Parameter(torch.randn(HIDDEN, INPUT, device="cuda").bfloat16())
        for n in range(4 * UPDATES):  # addresses come back after three to eight
            h = x * (1 + n / 4)
            for layer in layers:
                h, _ = layer(h @ first)
            (gradient,) = torch.autograd.grad(h.float().square().sum(), first)
            found.append([h.detach().cpu(), gradient.cpu()])
        return found

    expected = without_graphs(run)
    found, count = replayed(run)
    assert count >= 2 * 5 * (4 * UPDATES - 9)
    assert_same(found, expected)


@pytest.mark.parametrize("name", CELLS)
def test_inside_a_capture(name):
    """The caller's capture contains the launches themselves."""
    layer, contents = built(name), inputs()
    x = contents[0].clone().requires_grad_()

    def run():
        y, last = layer(x)
        loss = y.float().square().sum() + sum(state.sum() for state in last.values())
        return [y, *torch.autograd.grad(loss, [x, layer.weight_h])]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _, count = replayed(lambda: [run() and None for _ in range(UPDATES)])
    assert count > 0
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()

    def capture():
        with torch.cuda.graph(graph):
            return run()

    captured, count = replayed(capture)
    assert count == 0
    x.data.copy_(contents[1])
    graph.replay()
    assert_same([captured], [without_graphs(run)])


def test_threads_and_streams():
    layers, contents = [built("lstm") for _ in range(4)], inputs(count=30)
    expected = without_graphs(lambda: updates(layers[0], contents))
    torch.cuda.synchronize()

    def run(layer):
        with torch.cuda.stream(torch.cuda.Stream()):
            return updates(layer, contents)

    def at_once():
        with ThreadPoolExecutor(len(layers)) as pool:
            return list(pool.map(run, layers))

    found, count = replayed(at_once)
    assert count > 0
    for one in found:
        assert_same(one, expected)


def test_addresses_that_do_not_come_again():
    layer, contents = built("lstm"), inputs(count=50)
    expected = without_graphs(lambda: [layer(x)[0] for x in contents])
    before = _core.cuda_replays()
    found = [layer(x)[0] for x in contents]  # all of them stay on the device
    assert _core.cuda_replays() == before
    assert all(map(torch.equal, found, expected))


def test_many_kinds_of_calls():
    """Their graphs are freed with them."""
    layer, kinds = built("lstm"), range(5, 35)

    def forget():
        for kept in (layer_cuda._forward, layer_cuda._backward):
            kept.cache_clear()
        return _core.cuda_replays()[0]

    batches = [inputs(steps=steps) for steps in kinds]
    expected = without_graphs(lambda: [updates(layer, contents) for contents in batches])
    none = forget()
    for contents, wanted in zip(batches, expected, strict=True):
        assert_same(updates(layer, contents), wanted)
    assert _core.cuda_replays()[0] >= none + 2 * len(kinds)
    assert forget() == none


def test_few_launches_are_not_replayed():
    torch.manual_seed(0)
    layer = Recurrent("lstm", INPUT, 38).to("cuda", torch.bfloat16)
    _, count = replayed(lambda: updates(layer, inputs(batch=17)))
    assert count == 0


# By the planner's choice: registers, a block, a cluster, a grid, and more rows than one launch takes.
WAYS = [(17, 38), (20, 154), (100, 512), (128, 828), (300, 828), (5, 1000)]


@pytest.mark.parametrize("shape", WAYS, ids=str)
def test_any_plan(shape):
    batch, hidden = shape
    torch.manual_seed(0)
    layer = Recurrent("lstm", INPUT, hidden).to("cuda", torch.bfloat16)
    contents = inputs(batch=batch)
    expected = without_graphs(lambda: updates(layer, contents))
    _core.cuda_replay_from(launches=1)
    found, count = replayed(lambda: updates(layer, contents))
    assert count >= 2 * (UPDATES - 3)
    assert_same(found, expected)


SCRIPT = f"""
import torch
from tsm.plugin.layers import Recurrent
from tsm.runtime import _core
how = {{"cell": "lstm", "dtype": "float32", "device": 0, "batch": {BATCH}, "hidden": {HIDDEN}}}
assert _core.recurrence_cuda_take_plan(**how, backward=False, rank=-1) == "steps"
layer = Recurrent("lstm", {INPUT}, {HIDDEN}).cuda()
x = torch.randn({BATCH}, {STEPS}, {INPUT}, device="cuda")
with torch.no_grad():
    for _ in range({UPDATES}):
        layer(x)
print("replayed" if _core.cuda_replays()[1] else "not replayed")
"""


@pytest.mark.parametrize(
    ("given", "answer"),
    [("8", "replayed\n"), (None, "not replayed\n"), ("1000", "not replayed\n"), ("no", "")],
)
def test_the_environment_variable(given, answer):
    """The first of these processes also ends with a graph that it still keeps."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("TSM_CUDA_REPLAY", None)
    if given is not None:
        env["TSM_CUDA_REPLAY"] = given
    command = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    assert run.stdout == answer, run.stderr
    assert (run.returncode == 0) == bool(answer), run.stderr
    assert answer or "TSM_CUDA_REPLAY = 'no'; accepted: a number of launches" in run.stderr
