"""A model in the C++ runtime: rounded weights, many streams, every instruction set, changed formulas.

`test_contract.py` compares every cell with the model in PyTorch, in any chunks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tolerances import assert_close
from tsm.export.contract.streams import DTYPES, KINDS, StreamedModel, T, run_alone
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cells import Cell, Vector, get_cell, register_cell
from tsm.plugin.cells.base import CELLS
from tsm.runtime import Model, isa_levels


@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_rounded_weights(cell, dtype, tmp_path):
    """Weights quantized on writing or on loading give the same bits."""
    logits = []
    for written in ("float32", dtype):
        model = StreamedModel(cell, "lm tokens", tmp_path, written)
        logits.append(run_alone(model, Model.load(model.path, dtype=dtype))[0])
    assert np.array_equal(*logits)


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
    made = StreamedModel(get_cell("plstm"), "lm tokens", tmp_path)
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
    made = StreamedModel(own_cell, kind, tmp_path, cell_options="rate=0.3:floor=0.2")
    model = Model.load(made.path)
    assert all(layer.interpreted for layer in model.layers)
    logits, _ = run_alone(made, model)
    assert_close(logits, made.expected()[0], "stream", "float32", "logits")


def test_a_changed_formula_does_not_run_the_built_in_one(monkeypatch, tmp_path):
    cell = get_cell("plstm")
    before, _ = run_alone(made := StreamedModel(cell, "lm tokens", tmp_path), Model.load(made.path))

    class Changed(cell):
        @staticmethod
        def step(ops, z, s, v, const, dt):
            new = cell.step(ops, z, s, v, const, dt)
            return {**new, "h": 0.5 * new["h"]}

    monkeypatch.setitem(CELLS._entries, "plstm", Changed)
    made = StreamedModel(Changed, "lm tokens", tmp_path, backend="reference")
    model = Model.load(made.path)
    assert model.layers[0].cell == "plstm" and model.layers[0].interpreted
    logits, _ = run_alone(made, model)
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
