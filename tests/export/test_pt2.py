"""torch.export files equal the model: any N and T in one graph of torch's own operators."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from small_models import small
from tolerances import assert_close
from tsm.export.common.formats import Options, Source
from tsm.export.torch.pt2 import completer, export_pt2, runners, write
from tsm.export.torch.runner import TorchRunner
from tsm.export.verify.verify import verify

pytestmark = pytest.mark.filterwarnings("ignore:The given buffer is not writable")

MODELS = {
    "plstm_lm": ("scan", None, {"decoder_layers": 2}),
    "nru_classifier": ("scan", None, {}),
    "fast_lstm_tagger": ("unrolled", 3, {"input_size": 3}),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """arch -> (source, path, options)"""
    made = {}
    for arch, (form, chunk_size, options) in MODELS.items():
        source = Source(small(arch, **options))
        path = tmp_path_factory.mktemp(arch) / "model.pt2"
        write(source, path, Options(form, chunk_size), lambda what: None)
        made[arch] = source, path, Options(form, chunk_size)
    return made


@pytest.mark.parametrize("arch", MODELS)
def test_is_the_model(arch, exported):
    """Compares other N and T, chunks, ragged rows, dt, saved states and a stream with float64."""
    source, path, options = exported[arch]
    report = verify(source.model, runners(path, options), steps=30)
    assert report.passed, str(report)


@pytest.mark.parametrize("arch", MODELS)
def test_graph(arch, exported):
    """The file has only torch's own operators, one scan per layer or none, and the metadata needed to serve
    it."""
    _, path, options = exported[arch]
    files = {"tsm.json": ""}
    program = torch.export.load(path, extra_files=files)
    used = {
        str(node.target)
        for module in program.graph_module.modules()
        for node in getattr(module, "graph", torch.fx.Graph()).nodes
        if node.op == "call_function"
    }
    assert any("matmul" in name or "mm" in name for name in used)
    assert not [name for name in used if name.startswith("tsm")]
    assert ("scan" in used) == (options.recurrence == "scan")
    assert json.loads(files["tsm.json"])["recurrence"] == options.recurrence


@pytest.mark.parametrize("arch", [a for a, (form, *_) in MODELS.items() if form == "scan"])
def test_scan_is_told_its_batch(arch, exported):
    """N is an input of the operator: AOTInductor cannot infer the output size otherwise."""
    program = torch.export.load(exported[arch][1])
    (x,) = (node for node in program.graph.nodes if node.name == "x")
    scans = [node for node in program.graph.nodes if str(node.target) == "scan"]
    assert len(scans) == len(exported[arch][0].model.layers)
    for scan in scans:
        told = [str(one.meta["val"]) for one in scan.args[3]]
        assert str(x.meta["val"].shape[0]) in told


@pytest.mark.nightly
@pytest.mark.parametrize("arch", MODELS)
def test_compiles_with_aotinductor(arch, exported, tmp_path):
    """Both forms, loaded from the file; each needs a minute of C++ compilation."""
    source, path, options = exported[arch]
    files = {"tsm.json": ""}
    program = torch.export.load(path, extra_files=files)
    compiled = torch._inductor.aoti_compile_and_package(
        program, package_path=str(tmp_path / "compiled.pt2")
    )
    loaded = torch._inductor.aoti_load_package(compiled)
    complete = completer(json.loads(files["tsm.json"]))
    runner = TorchRunner("AOTInductor", loaded, options.chunk_size, complete)
    report = verify(source.model, [runner], steps=30)
    assert report.passed, str(report)


def test_runs_in_float64(tmp_path):
    """The first chunk, which begins with zeros, and the next one, which gets float32 states."""
    source, options = Source(small("plstm_lm")), Options("unrolled", 2, "float64")
    write(source, tmp_path / "model.pt2", options, lambda what: None)
    (runner,) = runners(tmp_path / "model.pt2", options)
    x = np.random.default_rng(4).integers(0, 11, (3, 4))
    first, state = runner.run(x[:, :2])
    rounded = [{name: v.astype(np.float32) for name, v in layer.items()} for layer in state]
    second, _ = runner.run(x[:, 2:], rounded, np.ones((3, 2), np.float32))
    with torch.no_grad():
        expected, _ = source.model(torch.from_numpy(x))
    assert first.dtype == np.float64
    assert_close(np.concatenate([first, second], 1), expected, "fused", "float32", "logits")


CLIENT = """
import sys
sys.modules["tsm"] = None  # importing it fails
import numpy, torch
model = torch.export.load(sys.argv[1]).module()
x, state, parts = torch.from_numpy(numpy.load(sys.argv[2])), None, []
state = [{name: torch.zeros(2, 6) for name in ("h", "c", "age")} for _ in range(2)]
with torch.no_grad():
    for chunk in x.split([1, 4, 2, 5], dim=1):
        lengths, dt = torch.full((2,), chunk.shape[1]), torch.ones(chunk.shape)
        logits, state = model(x=chunk, lengths=lengths, state=state, dt=dt)
        parts.append(logits)
numpy.save(sys.argv[3], torch.cat(parts, 1).numpy())
"""


def test_runs_where_tsm_is_not(exported, tmp_path):
    source, path, _ = exported["plstm_lm"]
    x = torch.randint(0, source.model.embed.vocab_size, (2, 12))
    np.save(tmp_path / "x.npy", x.numpy())
    files = (path, tmp_path / "x.npy", tmp_path / "logits.npy")
    command = [sys.executable, "-c", CLIENT, *map(str, files)]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=300)
    with torch.no_grad():
        expected, _ = source.model(x)
    assert_close(np.load(tmp_path / "logits.npy"), expected, "fused", "float32", "logits")


@pytest.mark.parametrize(
    "given, message",
    [
        ({"recurrence": "loop"}, "torch.export has: scan, unrolled"),
        ({"recurrence": "unrolled"}, "accepted: a number of steps.*'scan' for any T"),
        ({"chunk_size": 4}, "takes any T"),
        ({"dtype": "int8"}, "accepted: float32, float64, bfloat16, float16"),
    ],
)
def test_bad_choice(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_pt2(small("lstm_lm"), tmp_path / "model.pt2", **given)
    assert not list(tmp_path.iterdir())
