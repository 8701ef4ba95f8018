"""A model in the C++ runtime equals the model in PyTorch: every cell, family and kind of input, and any split
into chunks.

Compiled cells and cells that run from the program in the file go through the same tests, and so do third-party
cells (`--user-dir`) and one defined here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from streamed import DTYPES, KINDS, B, Made, T
from tolerances import assert_close
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cells import Cell, Vector, get_cell, register_cell
from tsm.plugin.cells.base import CELLS
from tsm.runtime import Model, isa_levels


def run(made: Made, model: Model) -> tuple[np.ndarray, list]:
    """Runs each stream alone, in one chunk."""
    streams = [model.create_stream() for _ in range(B)]
    logits = [s.feed(*made.chunk(row)) for row, s in enumerate(streams)]
    return np.stack(logits), streams


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_model_in_torch(cell, kind, tmp_path):
    made = Made(cell, kind, tmp_path)
    logits, streams = run(made, Model.load(made.path))
    expected, states = made.expected()
    assert_close(logits, expected, "stream", "float32", "logits")
    for row, stream in enumerate(streams):
        assert stream.position == T
        found = stream.state()
        for number, layer in enumerate(states):
            for name, value in layer.items():
                assert_close(
                    found[name][number],
                    value[row],
                    "stream",
                    "float32",
                    f"{name} of layer {number}",
                )


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_rounded_weights(cell, dtype, tmp_path):
    """Weights quantized on writing or on loading give the same bits, close to the model in float64."""
    made = Made(cell, "lm tokens", tmp_path)
    logits, _ = run(made, Model.load(made.path, dtype=dtype))
    expected, _ = made.expected()
    assert_close(logits, expected, "stream", dtype, "logits")
    written = Made(cell, "lm tokens", tmp_path, dtype)
    again, _ = run(written, Model.load(written.path, dtype=dtype))
    assert np.array_equal(logits, again)


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_chunks_and_any_batch_are_bitwise(cell, dtype, tmp_path):
    made = Made(cell, "lm tokens", tmp_path)
    model = Model.load(made.path, dtype=dtype)
    whole, ends = run(made, model)
    scores = [s.score(*made.chunk(row)) for row, s in enumerate(_fresh(model))]

    @settings(max_examples=10, deadline=None, derandomize=True)
    @given(st.lists(st.lists(st.integers(0, T), max_size=4).map(sorted), min_size=B, max_size=B))
    def check(cuts):
        streams, pieces = _fresh(model), [[] for _ in range(B)]
        for start, end in zip(
            zip(*[_padded([0, *c]) for c in cuts], strict=True),
            zip(*[_padded([*c, T]) for c in cuts], strict=True),
            strict=True,
        ):  # ragged chunks: each stream is split differently
            chunks = [made.chunk(r, start[r], end[r]) for r in range(B)]
            dts = None if made.dt is None else [dt for _, dt in chunks]
            found = model.feed_many(streams, [x for x, _ in chunks], dts)
            for row, logits in enumerate(found):
                pieces[row].append(logits)
        for row, (stream, end) in enumerate(zip(streams, ends, strict=True)):
            assert np.array_equal(np.concatenate(pieces[row]), whole[row])
            assert stream.save_state() == end.save_state()
        for row, stream in enumerate(_fresh(model)):
            parts = [
                stream.score(*made.chunk(row, a, b))
                for a, b in zip([0, *cuts[row]], [*cuts[row], T], strict=True)
            ]
            assert np.array_equal(np.concatenate(parts), scores[row])

    check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_crowds_are_bitwise(dtype, tmp_path):
    """The model is so wide that two threads share the work; there are more streams and rows than one batch
    takes."""
    torch.manual_seed(3)
    model = build_model("plstm_lm", vocab_size=13, decoder_embed_dim=6, decoder_hidden_size=256)
    package(model, tmp_path / "model.tsm")
    alone = Model.load(tmp_path / "model.tsm", dtype=dtype)
    threaded = Model.load(tmp_path / "model.tsm", dtype=dtype, threads=2)
    generator = np.random.default_rng(5)
    chunks = [generator.integers(0, 13, size=n) for n in generator.integers(1, 9, size=70)]
    found = threaded.feed_many([threaded.create_stream() for _ in chunks], chunks)
    for chunk, logits in zip(chunks, found, strict=True):
        assert np.array_equal(logits, alone.create_stream().feed(chunk))


def _fresh(model: Model) -> list:
    return [model.create_stream() for _ in range(B)]


def _padded(places: list[int]) -> list[int]:
    return [*places, *[T] * (5 - len(places))]


LEVEL_PROGRAM = """
import json, sys
import numpy as np
from tsm.runtime import Model
path, dtype, x, dt = json.load(sys.stdin)
model = Model.load(path, dtype=dtype)
dt = None if dt is None else np.float32(dt)
streams = [model.create_stream() for _ in x]
whole = [s.feed(np.array(r), None if dt is None else dt[i]) for i, (s, r) in enumerate(zip(streams, x))]
others = [model.create_stream() for _ in x]
for t in range(len(x[0])):
    part = model.feed_many(others, [np.array(r[t:t+1]) for r in x],
                           None if dt is None else [d[t:t+1] for d in dt])
    for i, logits in enumerate(part):
        assert np.array_equal(logits[0], whole[i][t]), (dtype, t, i)
assert all(a.save_state() == b.save_state() for a, b in zip(streams, others))
print(json.dumps({"level": model.level, "logits": np.stack(whole).tolist()}))
"""


@pytest.mark.parametrize("level", isa_levels())
def test_every_level_of_this_machine(level, tmp_path):
    """One process per instruction set and dtype: results are close to the model in torch, and single steps give
    the same bits."""
    made = Made(get_cell("plstm"), "lm tokens", tmp_path)
    expected, _ = made.expected()
    dt = None if made.dt is None else made.dt.tolist()
    for dtype in DTYPES:
        given_ = json.dumps([str(made.path), dtype, made.x.tolist(), dt])
        done = subprocess.run(
            [sys.executable, "-c", LEVEL_PROGRAM],
            input=given_,
            capture_output=True,
            text=True,
            env={**os.environ, "TSM_ISA": level},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["level"] == level
        assert_close(np.array(found["logits"]), expected, "stream", dtype, f"{level} {dtype}")


@pytest.fixture
def own_cell():
    """A cell that the core does not know; it is removed from the registry after the test."""

    @register_cell("own_test_cell")
    class Own(Cell):
        """c = f c' + (1 - f) g;  h = softsign(o) tanh(c) tau;  f = exp(-dt rate tau)"""

        gates = ("g", "o", "f")
        states = ("h", "c", "seen")
        vectors = {"tau": Vector(link="exp", start=(0.2, 2.0))}  # noqa: RUF012
        constants = {"rate": 0.5, "floor": 0.1}  # noqa: RUF012
        takes_dt = True

        @staticmethod
        def step(ops, z, s, v, const, dt):
            f = ops.exp(-dt * const.rate * v.tau) * ops.fast_sigmoid(z.f)
            c = f * s.c + (1 - f) * ops.tanh(z.g) - const.floor / (1 + ops.log(1 + s.seen))
            return dict(h=ops.softsign_gate(z.o) * ops.tanh(c) * v.tau, c=c, seen=s.seen + dt)

    yield Own
    del CELLS._entries["own_test_cell"], CELLS._makers["own_test_cell"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_that_is_not_compiled_in(own_cell, kind, tmp_path):
    made = Made(own_cell, kind, tmp_path, cell_options="rate=0.3:floor=0.2")
    model = Model.load(made.path)
    assert all(layer.interpreted for layer in model.layers)
    logits, _ = run(made, model)
    assert_close(logits, made.expected()[0], "stream", "float32", "logits")


def test_a_changed_formula_does_not_run_the_built_in_one(monkeypatch, tmp_path):
    cell = get_cell("plstm")
    before, _ = run(made := Made(cell, "lm tokens", tmp_path), Model.load(made.path))

    class Changed(cell):
        @staticmethod
        def step(ops, z, s, v, const, dt):
            new = cell.step(ops, z, s, v, const, dt)
            return {**new, "h": 0.5 * new["h"]}

    monkeypatch.setitem(CELLS._entries, "plstm", Changed)
    made = Made(Changed, "lm tokens", tmp_path, backend="reference")
    model = Model.load(made.path)
    assert model.layers[0].cell == "plstm" and model.layers[0].interpreted
    logits, _ = run(made, model)
    assert_close(logits, made.expected()[0], "stream", "float32", "logits")
    assert not np.allclose(logits, before, atol=1e-3)


def test_tied_output_and_frozen_biases(tmp_path):
    torch.manual_seed(1)
    model = build_model(
        "mts_lstm_lm",
        vocab_size=13,
        decoder_embed_dim=16,
        decoder_hidden_size=16,
        decoder_layers=3,
        share_decoder_input_output_embed=True,
    ).eval()
    with torch.no_grad():  # changes the weights between two calls, as weight decay does
        model.layers[0].bias.mul_(0.5)
    package(model, tmp_path / "m.tsm")
    x = torch.randint(0, 13, (T,))
    found = Model.load(tmp_path / "m.tsm").create_stream().feed(x.numpy())
    with torch.no_grad():
        expected = model.double()(x[None])[0][0]
    assert_close(found, expected, "stream", "float32")
