"""TorchScript files equal the model: every architecture, called like the model, without tsm's operators."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from small_models import small, structures
from tolerances import assert_close
from tsm.export import export
from tsm.export.common.formats import Options, Source
from tsm.export.common.runner import feed
from tsm.export.torch.step import step_module, step_source
from tsm.export.torch.torchscript import export_torchscript, runners, script, write
from tsm.export.verify.checks import named
from tsm.export.verify.reference import Reference
from tsm.export.verify.verify import verify
from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.torch_ops import TorchOps
from tsm.plugin.layers import Recurrent

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

FORMS = {"loop": None, "unrolled": 4}
FAMILIES = ("lm", "classifier")
NAMES = [name for family in FAMILIES for name in structures(family)]


@pytest.fixture(scope="module")
def verified() -> set[str]:
    """Code that has already passed all checks; architectures that differ only in numbers have the same code."""
    return set()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arch", NAMES)
def test_architecture(arch, form, tmp_path, verified):
    """Compares other N and T, chunks, ragged rows, dt and saved states with float64."""
    source, path = Source(small(arch)), tmp_path / "model.pt"
    options = Options(form, FORMS[form])
    write(source, path, options, lambda what: None)
    (runner,) = runners(path, options)
    with zipfile.ZipFile(path) as archive:
        files = sorted(n for n in archive.namelist() if n.endswith(".py"))
        code = "".join(archive.read(name).decode() for name in files)
    assert ("torch.matmul" in code) == bool(source.model.layers[0].weights)
    assert "ops.tsm" not in code
    if code not in verified:
        report = verify(source.model, [runner], steps=0)
        assert report.passed, str(report)
        verified.add(code)
        return
    x, lengths = np.random.default_rng(2).integers(0, 11, (3, 7)), np.array([7, 0, 5])
    reference = Reference(source.model)
    _, state = reference.run(x)
    state = [{name: value.astype(np.float32) for name, value in s.items()} for s in state]
    found, expected = (
        named(feed(runner, x, state, None, lengths)),
        named(reference.run(x, state, None, lengths)),
    )
    for name, value in expected.items():
        assert_close(found[name], value, "onnx", "float32", name)


def test_step_is_the_cells_program(cell):
    """One step in float64, whether its code is printed from the tape or written by hand, equals `advance`."""
    torch.manual_seed(3)
    options = [{}, {"layer_norm": True}] if cell.name == "nru" else [{}]
    for given in options:
        layer = Recurrent(cell.name, 3, 8, **given).double()
        step = step_module(layer, torch.float64, torch.float64)
        states = [torch.rand(5, layer.widths[name], dtype=torch.float64) for name in cell.states]
        zx = torch.randn(5, len(layer.bias), dtype=torch.float64)
        dt = torch.rand(5, 1, dtype=torch.float64) + 0.1
        with torch.no_grad():
            found = step(zx, states[0], states, step.weights(), dt)
            expected = cell.advance(
                TorchOps,
                zx,
                states[0],
                {name: layer.matrix(name) for name in layer.weights},
                dict(zip(cell.states, states, strict=True)),
                layer.vectors(),
                layer.options,
                dt,
            )
        for name, value in zip(cell.states, found, strict=True):
            assert_close(value, expected[name], "tape", "float64", f"{cell.name}: {name}")


def test_step_source_reads_like_the_formula():
    source = step_source(get_cell("plstm"), {"eps": 0.5})
    compile(source, "step", "exec")
    for part in ("z_r, z_o, z_g = z.chunk(3, 1)", "_keep", "_age", "_f = torch.exp(", "+ 0.5"):
        assert part in source


@pytest.fixture(scope="module")
def plstm():
    """A power-law tagger of two layers and its scripted loop."""
    model = small("plstm_tagger", decoder_layers=2, decoder_embed_dim=5)
    return model, script(model)


@pytest.mark.parametrize("form", FORMS)
def test_the_padding_of_rows_may_hold_anything(form, tmp_path):
    model = small("plstm_tagger", input_size=3)
    path, options = tmp_path / "model.pt", Options(form, FORMS[form])
    write(Source(model), path, options, lambda what: None)
    scripted, lengths = torch.jit.load(path), torch.tensor([4, 0, 2])
    padding = torch.arange(4) >= lengths[:, None]
    x, dt = torch.randn(3, 4, 3), torch.rand(3, 4) + 0.5
    found = []
    for value in (1.0, float("nan")):
        given = x.masked_fill(padding[..., None], value), dt.masked_fill(padding, value)
        found.append(scripted(given[0], lengths, None, given[1]))
    (y, states), (with_nan, others) = found
    assert torch.equal(y[~padding], with_nan[~padding])
    for one, other in zip(states, others, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_called_as_the_model(plstm):
    """The script takes the model's arguments and state, in the same order, and gives the same bits except for
    the rounding of p."""
    model, scripted = plstm
    x = torch.randint(0, model.embed.vocab_size, (3, 9))
    lengths, dt = torch.tensor([9, 0, 4]), torch.rand(3, 9) + 0.5
    with torch.no_grad():
        _, state = model(x)
        expected = model(x, lengths, state, dt)
        found = scripted(x, lengths, state, dt)
    assert_close(found[0], expected[0], "chunks", "float32", "logits")
    assert [list(layer) for layer in found[1]] == [
        list(layer.cell.states) for layer in model.layers
    ]
    for ours, theirs in zip(found[1], expected[1], strict=True):
        for name in theirs:
            assert_close(ours[name], theirs[name], "chunks", "float32", name)


def test_no_steps_change_nothing(plstm):
    model, scripted = plstm
    with torch.no_grad():
        _, state = scripted(torch.randint(0, model.embed.vocab_size, (2, 5)))
        logits, same = scripted(torch.zeros(2, 0, dtype=torch.long), state=state)
    assert logits.shape == (2, 0, model.decoder.out_features)
    for before, after in zip(state, same, strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reads", ["one_hot", "values"])
@pytest.mark.parametrize("kind", ["plstm", "nru"])
def test_other_inputs(reads, kind, form, tmp_path):
    given = {"decoder_embed_dim": 0} if reads == "one_hot" else {"input_size": 3}
    source, path = Source(small(f"{kind}_tagger", decoder_layers=2, **given)), tmp_path / "model.pt"
    options = Options(form, FORMS[form])
    write(source, path, options, lambda what: None)
    report = verify(source.model, runners(path, options), steps=30)
    assert report.passed, str(report)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["plstm", "nru"])
def test_weights_of_other_types(dtype, kind):
    """The script behaves like the model in that type: h and x are rounded before matrix products; states are
    float32 or float64."""
    model = small(f"{kind}_lm", decoder_layers=2)
    model = (
        model.double() if dtype == "float64" else model
    )  # p is computed from p_raw in the model's type
    scripted = script(model, dtype=dtype)
    like = model.to(getattr(torch, dtype))
    x = torch.randint(0, model.embed.vocab_size, (3, 7))
    with torch.no_grad():
        expected, last = like(x)
        found, state = scripted(x)
    kinds = {value.dtype for layer in state for value in layer.values()} | {found.dtype}
    assert kinds == {torch.float64 if dtype == "float64" else torch.float32}
    if dtype == "float64":
        assert_close(found, expected, "chunks", "float64", "logits")
    else:
        assert_close(found, expected, "fused", "bfloat16", "logits")
        assert_close(state[-1]["h"], last[-1]["h"], "fused", "bfloat16", "h")
        exact, _ = script(model.float())(x)
        assert not torch.allclose(found, exact, atol=1e-6), "the weights were not rounded"


def test_facts_and_a_shared_table(tmp_path):
    """The metadata for serving is in the file; an embedding table that is also the decoder's weight is stored
    once."""
    model = small("awd_lstm_lm")
    assert model.decoder.weight is model.embed.weight
    path = tmp_path / "model.pt"
    export_torchscript(model, path)
    files = {"tsm.json": ""}
    loaded = torch.jit.load(path, _extra_files=files)
    facts = json.loads(files["tsm.json"])
    assert facts["family"] == "lm" and facts["recurrence"] == "loop"
    assert [s["width"] for s in json.loads(facts["states"]) if s["name"] == "h"] == [
        layer.hidden_size for layer in model.layers
    ]
    stored = {value.data_ptr(): value.numel() for value in loaded.state_dict().values()}
    assert sum(stored.values()) == sum(p.numel() for p in model.parameters())


def test_through_export(tmp_path):
    """The file is written and verified before it is renamed to its final name."""
    report = export(small("plstm_lm"), tmp_path / "model.pt", format="torchscript", steps=100)
    assert report.passed and report.recurrence == "loop"
    assert torch.jit.load(tmp_path / "model.pt").takes_dt


CLIENT = """
import sys
for name in ("tsm", "onnx", "onnxruntime"):
    sys.modules[name] = None  # importing it fails
import numpy, torch
x = torch.from_numpy(numpy.load("x.npy"))
for name in sys.argv[1:]:
    model, state, parts = torch.jit.load(f"{name}.pt"), None, []
    with torch.no_grad():
        for chunk in x.split([1, 4, 2, 5], dim=1):
            logits, state = model(chunk, state=state)
            parts.append(logits)
    numpy.save(f"{name}.npy", torch.cat(parts, 1).numpy())
"""


def test_runs_where_tsm_is_not(tmp_path):
    models = {name: small(f"{name}_lm", decoder_layers=2) for name in ("plstm", "nru")}
    for name, model in models.items():
        export_torchscript(model, tmp_path / f"{name}.pt")
    x = torch.randint(0, 11, (2, 12))
    np.save(tmp_path / "x.npy", x.numpy())
    command = [sys.executable, "-c", CLIENT, *models]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=300)
    for name, model in models.items():
        with torch.no_grad():
            expected, _ = model(x)
        assert_close(np.load(tmp_path / f"{name}.npy"), expected, "fused", "float32", name)


@pytest.mark.nightly
def test_runs_in_a_cpp_program(tmp_path):
    """libtorch without Python: the client streams chunks and passes the state on without inspecting it."""
    model = small("plstm_lm", decoder_layers=2)
    export_torchscript(model, tmp_path / "model.pt")
    x = np.random.default_rng(1).integers(0, model.embed.vocab_size, (2, 12))
    x.tofile(tmp_path / "x.bin")
    source = Path(__file__).parent / "libtorch"
    configure = ["cmake", "-S", source, "-B", tmp_path / "build"]
    configure += [f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path}"]
    for command in (configure, ["cmake", "--build", tmp_path / "build"]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if "uses CUDA but I cannot find the CUDA" in done.stderr:
            pytest.skip("the CMake package of a torch with CUDA wants the CUDA toolkit")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    client = [tmp_path / "build" / "client", "model.pt", "x.bin", "2", "12", "logits.bin"]
    done = subprocess.run(client, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert '"family": "lm"' in done.stdout  # tsm.json
    found = np.fromfile(tmp_path / "logits.bin", np.float32).reshape(2, 12, -1)
    with torch.no_grad():
        expected, _ = model(torch.from_numpy(x))
    assert_close(found, expected, "fused", "float32", "logits")


BAD_CALLS = {
    "x has shape": lambda m, x: m(x.float()),
    "lengths has 5; accepted: 0 to T = 4": lambda m, x: m(x, lengths=torch.tensor([5, 0])),
    r"lengths has shape": lambda m, x: m(x, lengths=torch.tensor([4])),
    "dt has -1.; accepted: finite": lambda m, x: m(
        x, dt=torch.tensor([[1.0, 1, 1, -1], [1, 1, 1, 1]])
    ),
    "dt has nan": lambda m, x: m(x, dt=torch.full((2, 4), float("nan"))),
    "dt has shape": lambda m, x: m(x, dt=torch.ones(2, 3)),
    "state has 1 layers; accepted: None or 2": lambda m, x: m(x, state=m(x)[1][:1]),
    "state of layer 0 has no": lambda m, x: m(x, state=[{}, {}]),
    r"state h of layer 0 has shape \[2, \d+\]; accepted: \[1": lambda m, x: m(x[:1], state=m(x)[1]),
    "index out of range": lambda m, x: m(x + 1000),
}


@pytest.mark.parametrize("message", BAD_CALLS)
def test_bad_call(message, plstm):
    _, scripted = plstm
    with pytest.raises(Exception, match=message):  # torch.jit.Error, or the embedding's IndexError
        BAD_CALLS[message](scripted, torch.zeros(2, 4, dtype=torch.long))


def test_unrolled_takes_its_T_alone():
    scripted = script(small("lstm_lm"), recurrence="unrolled", chunk_size=3)
    with pytest.raises(torch.jit.Error, match=r"T = 5; accepted by this unrolled model: 3"):
        scripted(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(torch.jit.Error, match="dt was given, but cell lstm takes none"):
        scripted(torch.zeros(1, 3, dtype=torch.long), dt=torch.ones(1, 3))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"recurrence": "scan"}, "TorchScript has: loop, unrolled"),
        ({"recurrence": "unrolled"}, "accepted: a number of steps.*'loop' for any T"),
        ({"recurrence": "unrolled", "chunk_size": 0}, "chunk_size = 0"),
        ({"chunk_size": 4}, "takes any T"),
        ({"dtype": "int8"}, "accepted: float32, float64, bfloat16, float16"),
    ],
)
def test_bad_choice(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_torchscript(small("lstm_lm"), tmp_path / "model.pt", **given)
    assert not list(tmp_path.iterdir())
