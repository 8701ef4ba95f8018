"""The Triton repository: its configs, its graph as called by the sequence batcher, its model.py.

Tests marked `triton` run a real tritonserver (triton_server.py).
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import triton_server
from small_models import small
from tsm.export import export
from tsm.export.common.formats import Options
from tsm.export.triton.repository import export_triton, runners
from tsm.export.verify.verify import verify
from tsm.runtime import Model

MODELS = {
    "plstm_lm": {"decoder_layers": 2},
    "nru_classifier": {"decoder_layers": 2},
    "lstm_tagger": {"input_size": 3},
}
KINDS = {"tensor(int64)": "INT64", "tensor(float)": "FP32"}
KINDS |= {"tensor(int32)": "INT32", "tensor(uint64)": "UINT64"}


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    """arch -> (the model, its repository)"""
    made = {}
    for arch, options in MODELS.items():
        model = small(arch, **options)
        made[arch] = model, tmp_path_factory.mktemp(arch) / "repository"
        export_triton(*made[arch])
    return made


@pytest.fixture(params=MODELS)
def repository(request, repositories):
    return repositories[request.param]


def parsed(text: str) -> dict[str, list[Any]]:
    """Parses protobuf text; maps each field to its values, in order."""
    tokens = re.findall(r'"[^"]*"|[{}\[\]:,]|[^\s{}\[\]:,]+', text)

    def message() -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        while tokens and tokens[0] != "}":
            field = tokens.pop(0)
            token = tokens.pop(0)
            if token == "{":
                value = message()
                assert tokens.pop(0) == "}"
            else:
                assert token == ":"
                value = tokens.pop(0)
                if value == "[":
                    value = []
                    while (token := tokens.pop(0)) != "]":
                        value += [] if token == "," else [int(token)]
                elif value.startswith('"'):
                    value = value[1:-1]
                elif re.fullmatch(r"-?\d+", value):
                    value = int(value)
            found.setdefault(field, []).append(value)
        return found

    result = message()
    assert not tokens
    return result


def config_of(folder: Path) -> dict[str, list[Any]]:
    return parsed((folder / "config.pbtxt").read_text())


def tensors(messages: list[dict[str, list[Any]]]) -> dict[str, tuple[str, list[int]]]:
    """name -> (type, shape with the batch axis)"""
    return {
        m["name"][0]: (m["data_type"][0].removeprefix("TYPE_"), [-1, *m["dims"][0]])
        for m in messages
    }


def shape(dims: list[int | str]) -> list[int]:
    return [-1 if isinstance(d, str) else d for d in dims]


def test_layout(repository):
    model, path = repository
    arch = model.config["arch"]
    files = {str(f.relative_to(path)) for f in path.rglob("*") if f.is_file()}
    assert files == {
        f"{arch}_onnx/config.pbtxt",
        f"{arch}_onnx/1/model.onnx",
        f"{arch}_runtime/config.pbtxt",
        f"{arch}_runtime/1/model.py",
        f"{arch}_runtime/1/model.tsm",
    }
    for folder in path.iterdir():
        assert config_of(folder)["name"] == [folder.name]


def test_config_of_the_graph_is_the_graph(repository):
    """Inputs, controls and states together match the graph: names, types and shapes."""
    model, path = repository
    folder = path / f"{model.config['arch']}_onnx"
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx")
    config = config_of(folder)
    (sequences,) = config["sequence_batching"]
    states = sequences["state"]
    given = tensors(config["input"])
    for control in sequences["control_input"]:
        (rule,) = control["control"]
        whole = "TYPE_INT32" if rule.get("int32_false_true") == [[0, 1]] else rule["data_type"][0]
        given[control["name"][0]] = (whole.removeprefix("TYPE_"), [-1, 1])
    for state in states:
        given[state["input_name"][0]] = ("FP32", [-1, *state["dims"][0]])
    assert given == {i.name: (KINDS[i.type], shape(i.shape)) for i in session.get_inputs()}
    made = tensors(config["output"])
    made |= {s["output_name"][0]: ("FP32", [-1, *s["dims"][0]]) for s in states}
    assert made == {o.name: (KINDS[o.type], shape(o.shape)) for o in session.get_outputs()}


def test_states_begin_at_zero_and_are_in_order(repository):
    model, path = repository
    (sequences,) = config_of(path / f"{model.config['arch']}_onnx")["sequence_batching"]
    order = []
    for state in sequences["state"]:
        name, layer = re.fullmatch(r"state_(\w+)_(\d+)_in", state["input_name"][0]).groups()
        assert state["output_name"] == [f"state_{name}_{layer}_out"]
        (first,) = state["initial_state"]
        assert first["zero_data"] == ["true"]
        assert first["dims"] == state["dims"] == [[model.layers[int(layer)].widths[name]]]
        assert first["data_type"] == state["data_type"] == ["TYPE_FP32"]
        order.append((name, int(layer)))
    wanted = [(n, i) for i, layer in enumerate(model.layers) for n in layer.cell.states]
    assert order == sorted(wanted)
    names = [state["initial_state"][0]["name"][0] for state in sequences["state"]]
    assert len(set(names)) == len(names)


def test_sequences_of_both(repository):
    """Both configs have all four controls, and an idle timeout long enough for a person to think."""
    _, path = repository
    for folder in path.iterdir():
        (sequences,) = config_of(folder)["sequence_batching"]
        kinds = {c["name"][0]: c["control"][0]["kind"][0] for c in sequences["control_input"]}
        assert kinds == {
            name: f"CONTROL_SEQUENCE_{name}" for name in ("START", "END", "READY", "CORRID")
        }
        assert 60e6 <= sequences["max_sequence_idle_microseconds"][0] <= 86400e6
        assert sequences["oldest"][0]["max_candidate_sequences"][0] >= 64


def test_both_are_the_model(repository):
    """The ONNX graph is given START and states of NaN; the runtime's file is run by the runtime."""
    model, path = repository
    found = runners(path, Options("scan"))
    assert len(found) == 2
    report = verify(model, found, steps=30)
    assert report.passed, str(report)


def test_through_export(tmp_path):
    """The repository is written and verified before it is renamed to its final name."""
    report = export(small("lstm_lm"), tmp_path / "models", format="triton", dtype="int8", steps=50)
    assert report.passed
    assert {check.runner for check in report.checks} > {"tsm.runtime"}
    assert (tmp_path / "models" / "lstm_lm_runtime" / "1" / "model.tsm").is_file()


def test_rows_of_a_batch_begin_and_wait_on_their_own(repositories):
    model, path = repositories["plstm_lm"]
    session = onnxruntime.InferenceSession(path / "plstm_lm_onnx" / "1" / "model.onnx")
    states = [i.name for i in session.get_inputs() if i.name.startswith("state_")]
    rng = np.random.default_rng(0)
    x = rng.integers(0, model.embed.vocab_size, (3, 4))
    feeds = {name: rng.random((3, 6), np.float32) for name in states}
    row = {"START": [1, 0, 0], "READY": [1, 1, 0], "END": [0, 0, 0]}
    controls = {name: np.array(v, np.int32)[:, None] for name, v in row.items()}
    controls["CORRID"] = np.array([[1], [2], [3]], np.uint64)
    outputs = dict(
        zip(
            [o.name for o in session.get_outputs()],
            session.run(None, {"x": x, **feeds, **controls}),
            strict=True,
        )
    )
    before = [
        {n: torch.from_numpy(feeds[f"state_{n}_{i}_in"].copy()) for n in layer.cell.states}
        for i, layer in enumerate(model.layers)
    ]
    for layer in before:
        for value in layer.values():
            value[0] = 0
    with torch.no_grad():
        logits, after = model(torch.from_numpy(x), state=before)
    np.testing.assert_allclose(outputs["logits"][:2], logits.numpy()[:2], atol=1e-5)
    for i, layer in enumerate(after):
        for name, value in layer.items():
            got = outputs[f"state_{name}_{i}_out"]
            np.testing.assert_allclose(got[:2], value.numpy()[:2], atol=1e-5)
            assert np.array_equal(got[2], feeds[f"state_{name}_{i}_in"][2])


@pytest.mark.parametrize(
    "given, message",
    [
        ({"recurrence": "unrolled", "chunk_size": 4}, "accepted: scan, loop"),
        ({"chunk_size": 4}, "chunk_size = 4"),
        ({"dtype": "bfloat16"}, "accepted for Triton: float32, int8"),
    ],
)
def test_bad_choice(given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_triton(small("lstm_lm"), tmp_path / "repository", **given)
    assert not list(tmp_path.iterdir())


def test_joins_a_repository_and_replaces_nothing(tmp_path):
    """Existing files, other models, and earlier models of this name stay."""
    models = tmp_path / "models"
    mine = models / "other" / "1" / "model.onnx"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    for arch in ("lstm_lm", "plstm_lm"):
        assert export(small(arch), models, format="triton", steps=0).passed
    made = {f"{arch}_{kind}" for arch in ("lstm_lm", "plstm_lm") for kind in ("onnx", "runtime")}
    files = {path: path.read_bytes() for path in models.rglob("*") if path.is_file()}
    assert {path.name for path in models.iterdir()} == {"other", *made}
    assert files[mine] == b"mine"
    for again in (lambda model: export(model, models, format="triton"),
                  lambda model: export_triton(model, models)):  # fmt: skip
        with pytest.raises(ValueError, match="lstm_lm_onnx already exists"):
            again(small("lstm_lm", decoder_hidden_size=3))
    assert {path: path.read_bytes() for path in models.rglob("*") if path.is_file()} == files
    with pytest.raises(ValueError, match="is a file; accepted: a folder"):
        export(small("lstm_lm"), mine, format="triton")


# ---- model.py, with a stand-in for Triton's Python module


class StandIn(types.ModuleType):
    """The parts of triton_python_backend_utils that model.py uses."""

    class Tensor:
        def __init__(self, name, value):
            self._name, self._value = name, value

        def name(self):
            return self._name

        def as_numpy(self):
            return self._value

    class TritonError(Exception):
        pass

    class InferenceResponse:
        def __init__(self, output_tensors, error=None):
            self.outputs, self.error = output_tensors, error

    @staticmethod
    def get_input_tensor_by_name(request, name):
        return next((tensor for tensor in request if tensor.name() == name), None)


@pytest.fixture
def served(repository, monkeypatch):
    """(TritonPythonModel of the repository, the runtime's model)"""
    model, path = repository
    folder = path / f"{model.config['arch']}_runtime"
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", StandIn("stand_in"))
    spec = importlib.util.spec_from_file_location("triton_model_of_test", folder / "1" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = config_of(folder)
    parameters = {p["key"][0]: {"string_value": p["value"][0]["string_value"][0]}
                  for p in config["parameters"]}  # fmt: skip
    idle = str(config["sequence_batching"][0]["max_sequence_idle_microseconds"][0])
    told = {
        "parameters": parameters,
        "sequence_batching": {"max_sequence_idle_microseconds": idle},
    }
    backend = module.TritonPythonModel()
    backend.initialize({"model_config": json.dumps(told)})
    return backend, Model.load(folder / "1" / "model.tsm")


def request(number: int, x: np.ndarray, start=False, end=False, dt=None):
    flags = {"START": start, "END": end, "READY": True}
    tensors = {name: np.array([[flag]], np.int32) for name, flag in flags.items()}
    tensors |= {"CORRID": np.array([[number]], np.uint64), "x": x[None]}
    tensors |= {} if dt is None else {"dt": dt[None]}
    return [StandIn.Tensor(name, value) for name, value in tensors.items()]


def chunk(rng, model, steps):
    if model.takes_tokens:
        return rng.integers(0, model.vocab_size, steps)
    return rng.standard_normal((steps, model.input_size)).astype(np.float32)


def bad_chunk(model):
    return np.array([-1]) if model.takes_tokens else np.full((1, model.input_size), np.nan, "f4")


def logits(response):
    assert response.error is None, response.error
    (tensor,) = response.outputs
    assert tensor.name() == "logits"
    return tensor.as_numpy()


def test_interleaved_sequences(served):
    """Batches that contain some of many sequences, with chunks of all lengths, give the same bits as the
    runtime alone."""
    backend, model = served
    last = model.family == "classifier"
    rng = np.random.default_rng(4)
    streams, fed = {}, 0
    for _ in range(40):
        batch, expected = [], []
        for number in rng.choice(9, rng.integers(1, 6), replace=False):
            start = number not in streams or rng.random() < 0.1
            if start:
                streams[number] = model.create_stream()
            x, end = chunk(rng, model, rng.integers(1, 7)), rng.random() < 0.1
            dt = rng.random(len(x), np.float32) + 0.5
            dt = dt if model.takes_dt and rng.random() < 0.5 else None
            batch.append(request(number, x, start, end, dt))
            expected.append(streams[number].feed(x, dt, last_only=last))
            if end:
                del streams[number]
            fed += 1
        for response, want in zip(backend.execute(batch), expected, strict=True):
            assert np.array_equal(logits(response), want[None])
        assert set(backend.streams) == set(streams)
    assert fed > 80


def test_a_bad_request_harms_nobody(served):
    backend, model = served
    last = model.family == "classifier"
    rng = np.random.default_rng(5)
    x = chunk(rng, model, 3)
    good, bad = backend.execute(
        [request(1, x, start=True), request(2, bad_chunk(model), start=True)]
    )
    stream = model.create_stream()
    assert np.array_equal(logits(good)[0], stream.feed(x, last_only=last))
    assert "accepted" in str(bad.error)
    first, second = backend.execute([request(1, x), request(2, x)])
    assert np.array_equal(logits(first)[0], stream.feed(x, last_only=last))
    fresh = model.create_stream().feed(x, last_only=last)
    assert np.array_equal(logits(second)[0], fresh)  # the bad request did not change its stream
    two = [tensor for tensor in request(1, x) if tensor.name() != "x"]
    (two_rows,) = backend.execute([[*two, StandIn.Tensor("x", np.stack([x, x]))]])
    assert "x has 2 rows" in str(two_rows.error)


def test_a_sequence_that_was_not_begun(served):
    backend, model = served
    (response,) = backend.execute([request(3, chunk(np.random.default_rng(6), model, 2))])
    assert "sequence 3 has no stream" in str(response.error)
    assert not backend.streams


def test_idle_streams_are_dropped(served, monkeypatch):
    backend, model = served
    x = chunk(np.random.default_rng(7), model, 2)
    clock = [1000.0]
    monkeypatch.setattr(type(backend).execute.__globals__["time"], "monotonic", lambda: clock[0])
    backend.execute([request(1, x, start=True), request(2, x, start=True)])
    clock[0] += 0.9 * backend.idle_seconds
    backend.execute([request(1, x)])
    clock[0] += 0.2 * backend.idle_seconds
    backend.execute([request(4, x, start=True)])
    assert set(backend.streams) == {1, 4}
    assert backend.idle_seconds > 600  # longer than Triton itself keeps an idle sequence


def test_two_requests_of_one_sequence_in_a_batch_go_in_order(served):
    backend, model = served
    last = model.family == "classifier"
    rng = np.random.default_rng(8)
    a, b = chunk(rng, model, 2), chunk(rng, model, 3)
    stream = model.create_stream()
    responses = backend.execute([request(1, a, start=True), request(1, b)])
    for found, x in zip(responses, (a, b), strict=True):
        assert np.array_equal(logits(found)[0], stream.feed(x, last_only=last))


# ---- a real server

LISTENER = '''
import json
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils
class TritonPythonModel:
    """Says what it was handed."""
    def execute(self, requests):
        responses = []
        for request in requests:
            got = {t.name(): t.as_numpy() for t in request.inputs()}
            told = {n: [str(v.dtype), list(v.shape), bool(np.any(v))] for n, v in got.items()}
            Path(__file__).with_name("told.json").write_text(json.dumps(told))
            zeros = np.zeros((1, got["x"].shape[1], SIZE), np.float32)
            tensor = pb_utils.Tensor("logits", zeros)
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
'''


@pytest.fixture(scope="module")
def server(repositories, tmp_path_factory):
    """A tritonserver with the runtime's models, and with the graph's config for a model that records its
    inputs."""
    scratch = tmp_path_factory.mktemp("triton")
    home = scratch / "repository"
    for arch, (model, path) in repositories.items():
        shutil.copytree(path / f"{arch}_runtime", home / f"{arch}_runtime")
        triton_server.place_runtime(home / f"{arch}_runtime" / "1")
        if arch == "plstm_lm":
            shutil.copytree(path / f"{arch}_onnx", home / f"{arch}_onnx")
            config = home / f"{arch}_onnx" / "config.pbtxt"
            text = config.read_text().replace("onnxruntime", "python")
            config.write_text(text.replace("KIND_AUTO", "KIND_CPU"))
            listener = LISTENER.replace("SIZE", str(model.decoder.out_features))
            (home / f"{arch}_onnx" / "1" / "model.py").write_text(listener)
    with triton_server.Server(home, scratch) as running:
        for folder in home.iterdir():
            assert running.ready(folder.name), running.log.read_text()[-4000:]
        yield running


@pytest.mark.triton
def test_server_interleaves_sequences(server, repositories):
    """Concurrent clients with chunks of all lengths each get the same bits as from the runtime alone."""

    def client(number: int) -> int:
        rng = np.random.default_rng(number)
        arch = list(MODELS)[number % len(MODELS)]
        model = loaded[arch]
        last = model.family == "classifier"
        requests = 0
        for _ in range(2):  # the same id is used for a second sequence
            stream, sizes = model.create_stream(), rng.integers(1, 9, 8)
            for i, size in enumerate(sizes):
                x = chunk(rng, model, size)
                inputs = {"x": x[None]}
                if model.takes_dt and i % 2:
                    inputs["dt"] = (rng.random(len(x), np.float32) + 0.5)[None]
                found = server.infer(
                    f"{arch}_runtime", number + 1, i == 0, i + 1 == len(sizes), **inputs
                )
                dt = inputs["dt"][0] if "dt" in inputs else None
                assert np.array_equal(found[0], stream.feed(x, dt, last_only=last))
                requests += 1
        return requests

    loaded = {
        arch: Model.load(path / f"{arch}_runtime" / "1" / "model.tsm")
        for arch, (_, path) in repositories.items()
    }
    with ThreadPoolExecutor(9) as pool:
        assert sum(pool.map(client, range(9))) == 9 * 2 * 8


@pytest.mark.triton
def test_server_keeps_a_stream_from_a_bad_request(server, repositories):
    model = Model.load(repositories["plstm_lm"][1] / "plstm_lm_runtime" / "1" / "model.tsm")
    stream, x = model.create_stream(), np.array([[1, 2, 3]])
    name, number = "plstm_lm_runtime", 77
    assert np.array_equal(server.infer(name, number, start=True, x=x)[0], stream.feed(x[0]))
    with pytest.raises(RuntimeError, match=r"token 1000 .*accepted: 0 to"):
        server.infer(name, number, x=np.array([[1000]]))
    assert np.array_equal(server.infer(name, number, end=True, x=x)[0], stream.feed(x[0]))
    with pytest.raises(RuntimeError, match="must specify the START flag"):  # Triton itself says so
        server.infer(name, number, x=x)


@pytest.mark.triton
def test_server_hands_the_graph_what_it_wants(server, repositories):
    """pytriton has no ONNX backend; its sequence batcher is Triton's own and reads the graph's config."""
    x = np.array([[1, 2, 3]])
    server.infer("plstm_lm_onnx", 5, start=True, end=True, x=x)
    folder = Path(server.command[1].partition("=")[2]) / "plstm_lm_onnx" / "1"
    told = json.loads((folder / "told.json").read_text())
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    numpy_kinds = {"INT64": "int64", "FP32": "float32", "INT32": "int32", "UINT64": "uint64"}
    for wanted in session.get_inputs():
        kind, got, nonzero = told.pop(wanted.name)
        assert kind == numpy_kinds[KINDS[wanted.type]]
        fixed = [1 if d == "N" else 3 if d == "T" else d for d in wanted.shape]
        assert got == fixed
        if wanted.name.startswith("state_"):
            assert not nonzero
    assert not told
