"""OpenVINO, onnxruntime-node and onnxruntime-web run the streams that ONNX Runtime runs.

So do the programs in docs/export.md. These tests are marked `consumers` and need `make consumers-env`
(tests/consumers.py).
"""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import consumers
from small_models import H, small
from tolerances import assert_close
from tsm.export.common.formats import Options, Source
from tsm.export.onnx.model import write
from tsm.export.onnx.runners import OrtRunner
from tsm.export.verify.checks import Subject, named
from tsm.export.verify.reference import Reference

pytestmark = pytest.mark.consumers

FORMS = {"scan": None, "loop": None, "unrolled": 6}
READS = {
    "lm": {"decoder_layers": 2},
    "classifier": {"decoder_embed_dim": 0},
    "tagger": {"input_size": 3},
}
"""Tokens, one-hot tokens, values."""


@pytest.fixture(scope="module", params=consumers.NAMES)
def consumer(request):
    reason = consumers.why_not(request.param)
    if reason is not None:
        pytest.skip(reason)
    with consumers.Consumer(request.param) as running:
        yield running


def exported(model, path, form, inputs=None, dtype="float32"):
    options = Options(form, FORMS.get(form), dtype, inputs)
    write(Source(model), path, options, lambda what: None)
    return path


def of_cell(cell, family):
    options = {"cell_options": "memory_size=4:heads=4"} if cell == "nru" else {}
    return small(f"lstm_{family}", cell=cell, **READS[family], **options)


def ragged(subject, runner, rows=4):
    """The inputs, chunk by chunk: x, lengths (some of them 0), dt; T varies if the graph allows it."""
    rng = np.random.default_rng(7)
    for steps in (5, 1, 9, 2, 6):
        steps = runner.chunk_size or steps
        lengths = rng.integers(0, steps + 1, rows)
        yield subject.x(rng, rows, steps), lengths, subject.dt(rng, rows, steps)


def assert_same_streams(consumer, model, path, dtype="float32"):
    """Compares the runners on ragged chunks; each continues from its own states."""
    runners = [OrtRunner(path, threads=1), consumers.ConsumerRunner(consumer, path)]
    subject = Subject(model, Reference(model))
    inputs, states = runners[0].inputs, [None, None]
    for x, lengths, dt in ragged(subject, runners[0]):
        given = {"lengths": lengths, "dt": dt}
        outputs = []
        for i, runner in enumerate(runners):
            found = runner.run(x, states[i], **{n: given[n] for n in inputs})
            states[i] = found[1]
            outputs.append(named(found))
        for name, expected in outputs[0].items():
            assert_close(outputs[1][name], expected, "consumers", dtype, f"{path.name} {name}")


@pytest.mark.parametrize("form", FORMS)
def test_cell(consumer, cell, form, tmp_path):
    """Every cell, on tokens, one-hot tokens and values, with lengths, and with dt if the cell takes it."""
    for family in READS:
        model = of_cell(cell.name, family)
        assert_same_streams(consumer, model, exported(model, tmp_path / f"{family}.onnx", form))


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_smaller_weights(consumer, form, dtype, tmp_path):
    model = small("plstm_lm", decoder_layers=2)
    path = exported(model, tmp_path / "model.onnx", form, dtype=dtype)
    assert_same_streams(consumer, model, path, dtype)


@pytest.mark.parametrize("inputs", [("lengths",), ()])
@pytest.mark.parametrize("family", READS)
def test_lstm_operator(consumer, family, inputs, request, tmp_path):
    if consumer.name == "openvino" and inputs:
        reason = "OpenVINO 2026.4 runs its LSTM operator over all T steps, whatever the lengths"
        request.applymarker(pytest.mark.xfail(reason=reason, raises=AssertionError, strict=True))
    model = of_cell("lstm", family)
    path = exported(model, tmp_path / "model.onnx", "lstm_op", inputs)
    assert_same_streams(consumer, model, path)


@pytest.mark.parametrize("inputs", [("lengths", "dt"), ("lengths",), ("dt",), ()])
def test_inputs(consumer, inputs, tmp_path):
    """The consumer reports exactly the inputs that were exported; a missing input is an error."""
    model = small("plstm_lm")
    path = exported(model, tmp_path / "model.onnx", "scan", inputs)
    ports = consumer.open(path)
    states = {f"state_{name}_0_in": np.zeros((2, H), np.float32) for name in ("age", "c", "h")}
    feeds = {"x": np.zeros((2, 3), np.int64), **states}
    feeds |= {n: v for n, v in clock(feeds["x"]).items() if n in inputs}
    assert len(ports) == len(feeds) and set(feeds) <= {name for names in ports for name in names}
    assert_same_streams(consumer, model, path)
    if consumer.name == "openvino":  # its request keeps earlier inputs
        return
    for left_out in inputs:
        with pytest.raises(RuntimeError, match=left_out):
            consumer.run({name: value for name, value in feeds.items() if name != left_out})


def snippets():
    """consumer -> the program for it in docs/export.md"""
    page = (consumers.ROOT / "docs" / "export.md").read_text()
    section = page.partition("### In other programs")[2].partition("\n## ")[0]
    python, openvino, node = re.findall(r"```(?:python|js)\n(.*?)```", section, re.DOTALL)
    web = node.replace('"onnxruntime-node"', '"onnxruntime-web"')
    return dict(zip(consumers.NAMES, (openvino, node, web), strict=True)) | {"onnxruntime": python}


@pytest.mark.parametrize("name", ["onnxruntime", *consumers.NAMES])
def test_program_of_the_docs(name, tmp_path):
    """The program prints the token that PyTorch predicts next."""
    place = consumers.environment()
    if name != "onnxruntime" and (reason := consumers.why_not(name)):
        pytest.skip(reason)
    model = small("plstm_lm")
    exported(model, tmp_path / "model.onnx", "scan")
    if name in ("onnxruntime", "openvino"):
        python = sys.executable if name == "onnxruntime" else place / "bin" / "python"
        command = [python, "-c", snippets()[name]]
    else:
        (tmp_path / "node_modules").symlink_to(place.absolute() / "node_modules")
        (tmp_path / "program.mjs").write_text(snippets()[name])
        command = ["node", "program.mjs"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        logits, _ = model(torch.tensor([[4, 8, 1, 5, 2]]))
    assert int(done.stdout) == int(logits[0, -1].argmax())


def clock(x):
    """Whole rows, steps of 1."""
    return {"lengths": np.full(len(x), x.shape[1]), "dt": np.ones(x.shape, np.float32)}
