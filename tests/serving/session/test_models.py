"""What the server tells about its models, and which files it refuses."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys

import numpy as np
import pytest
import torch
from websockets.sync.client import connect

from tsm.plugin import build_model
from tsm.plugin.data.labels import dump_labels
from tsm.plugin.data.subword import SentencePieceTokenizer, train_sentencepiece
from tsm.plugin.data.vocab import Vocab
from tsm.runtime import Model, TsmError
from tsm.runtime.serving.store.base import StoreError
from tsm.runtime.serving.store.memory import MemoryStore
from tsm.runtime.serving.streams import models as models_module
from tsm.runtime.serving.streams.engine import Engine
from tsm.runtime.serving.streams.models import SPARE, Models, Source, none_used
from tsm.runtime.serving.transport.limits import Limits
from tsm.runtime.serving.transport.problems import Problem

from ..server_process import serving
from .served import ask, sessions_of

package = importlib.import_module("tsm.export.tsm.package")


def test_names_of_inputs_and_classes(server):
    """Of every model; null where the file has none."""
    found = {one["id"]: one for one in server.ask("GET", "/v1/models").json["data"]}
    assert found["tagger"] == server.ask("GET", "/v1/models/tagger").json
    assert found["tagger"]["labels"] == ["up", "to go", "down"]
    assert found["tagger"]["columns"] is None
    assert found["tagger"]["takes_dt"] is True
    assert found["ids"]["labels"] is None and found["ids"]["takes_dt"] is False
    assert {one["targets"] for one in found.values()} == {None}


def test_numbers_are_no_logits(files, tmp_path):
    """No route turns outputs that are numbers into probabilities; a refused request changes nothing."""
    model = build_model("lstm_tagger", input_size=1, num_classes=2, decoder_hidden_size=4)
    assets = {"targets.txt": dump_labels(["speed", "height"])}
    file = package.package(model, tmp_path / "numbers.tsm", assets=assets).path
    values = {"values": [[0.5]]}
    with serving(file, files["lm"]) as server:
        assert server.get("/v1/models/numbers")["targets"] == ["speed", "height"]
        with connect(f"ws://{server.netloc}/v1/sessions/a/stream") as websocket:
            websocket.send(json.dumps({"op": "feed", "top": 2, **values}))
            refused = [json.loads(websocket.recv(timeout=60))["error"]]
            websocket.send(json.dumps({"op": "feed", "logits": "last", **values}))
            logits = json.loads(websocket.recv(timeout=60))["logits"]
        refused.append(server.ask("POST", "/v1/sessions/b/feed", {"top": 2, **values}).json)
        for one in refused:
            assert one["status"] == 400
            assert "top = 2" in one["detail"] and "numbers (speed, height)" in one["detail"]
        tensor = {"name": "values", "datatype": "FP32", "shape": [1, 1], "data": [0.5]}
        at, body = "/v2/models/numbers/infer", {"inputs": [tensor]}
        assert server.post(at, **body)["outputs"][0]["data"] == pytest.approx(logits, rel=1e-8)
        assert server.ask("POST", at, {**body, "parameters": {"top": 2}}).status == 400
        for path, more in (
            ("/v1/completions", {"model": "numbers", "prompt": [1], "logprobs": 2}),
            ("/v1/sessions/b/score", values),
            ("/v1/sessions/b/generate", {"n": 1, **values}),
        ):
            assert server.ask("POST", path, more).status == 400, path
        assert server.get("/v1/sessions/a")["position"] == 1
        assert server.ask("GET", "/v1/sessions/b").status == 404
    alone = Model.load(file).create_stream().feed(np.float32([[0.5]]), last_only=True)
    assert np.float32(logits).tolist() == alone.tolist()


@pytest.mark.parametrize("file", ["labels.txt", "targets.txt", "columns.txt"])
def test_a_file_with_damaged_names_is_refused_when_it_is_loaded(tmp_path, monkeypatch, file):
    monkeypatch.setattr(package, "load_labels", lambda data, where, count: None)
    model = build_model("lstm_tagger", input_size=2, num_classes=2)
    package.package(model, tmp_path / "m.tsm", assets={file: b"a\na\n"})
    with pytest.raises(TsmError, match="accepted: 2 different names"):
        Models([Source("m", str(tmp_path / "m.tsm"))], Limits(), "float32", 1)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """Files of a model with different weights."""
    folder = tmp_path_factory.mktemp("weights")
    for number in range(8):
        torch.manual_seed(number)
        model = build_model("lstm_lm", vocab_size=9, decoder_embed_dim=4, decoder_hidden_size=4)
        package.package(model, folder / f"{number}.tsm")
    return [folder / f"{number}.tsm" for number in range(8)]


def drawn(path, count):
    """What a new stream draws in steps of one."""
    stream = Model.load(path).create_stream()
    return [stream.generate(1, seed=1).tolist() for _ in range(count)]


async def draw(sessions, name):
    return (await ask(sessions, "user", name, "generate", n=1, seed=1))["tokens"]


def test_weights_stay_while_sessions_need_them(weights, opened, tmp_path):
    """Whether the session is in memory or only in the store; of the others, the last few stay."""
    path = tmp_path / "m.tsm"

    async def main():
        replace(path, weights[0])
        async with sessions_of(path, opened.open()) as sessions:
            parts = [await draw(sessions, "a")]
            for number, file in enumerate(weights[1:], 1):
                replace(path, file)
                assert await sessions.reload() == ["m"]
                if number == 2:
                    await draw(sessions, "of-two")
                if number % 2:
                    sessions.hot.clear()  # as if other streams needed the memory
                parts.append(await draw(sessions, "a"))
            assert parts == drawn(weights[0], len(weights))
            assert await draw(sessions, "of-two") == drawn(weights[2], 2)[1]
            assert await draw(sessions, "new") == drawn(weights[-1], 1)[0]
            versions = [engine.model.checksum for engine in sessions.models.engines["m"]]
            used = [*weights[: -SPARE - 1 : -1], weights[2], weights[0]]
            assert versions == [Model.load(file).checksum for file in used]

    asyncio.run(main())


def test_weights_beyond_the_limit(weights, opened, tmp_path):
    """Those that no session uses go first, then the oldest; the session is told which file has them."""
    path = tmp_path / "m.tsm"
    limits = Limits(weights=2 * Model.load(weights[0]).weight_bytes)

    async def main():
        replace(path, weights[0])
        async with sessions_of(path, opened.open(), limits) as sessions:
            for number, file in enumerate(weights[1:5], 1):
                if number != 3:  # nobody uses the version with index 2
                    await draw(sessions, f"s{number - 1}")
                replace(path, file)
                await sessions.reload()
            assert [len(sessions.hot), "user/s0" in sessions.hot] == [2, False]
            assert await draw(sessions, "s1") == drawn(weights[1], 2)[1]
            assert await draw(sessions, "s3") == drawn(weights[3], 2)[1]
            for _ in range(2):
                with pytest.raises(Problem, match="--max-weights") as refused:
                    await draw(sessions, "s0")
                old = Model.load(weights[0]).checksum
                assert f"version {old} of m.tsm" in refused.value.detail
                assert (refused.value.status, refused.value.more["position"]) == (409, 1)
            engines = sessions.models.engines["m"]
            assert sum(engine.model.weight_bytes for engine in engines[1:]) == limits.weights

    asyncio.run(main())


def reloaded(models, path, *files, used=none_used):
    """After a reload of each of these files."""

    async def main():
        for file in files:
            replace(path, file)
            await models.reload(used)

    asyncio.run(main())


def two_models(file, tmp_path, **limits):
    paths = [tmp_path / f"{name}.tsm" for name in "ab"]
    for path in paths:
        replace(path, file)
    return paths, Models([Source(p.stem, str(p)) for p in paths], Limits(**limits), "float32", 1)


def test_the_oldest_of_all_models_goes_first(weights, tmp_path):
    size = Model.load(weights[0]).weight_bytes
    (a, b), models = two_models(weights[0], tmp_path, weights=size)
    reloaded(models, a, *weights[1:3])
    reloaded(models, b, weights[1])
    assert [len(engines) for engines in models.engines.values()] == [2, 1]
    assert models.of("a", Model.load(weights[1]).fingerprint)


def test_why_a_version_is_gone(weights, tmp_path, monkeypatch):
    """Because nobody needed it, or for lack of room; the number of versions that are remembered is limited."""
    monkeypatch.setattr(models_module, "MOST_CLOSED", 2)
    (a, _), models = two_models(weights[0], tmp_path)
    reloaded(models, a, *weights[1:])
    gone = [models.missing("a", Model.load(file).fingerprint) for file in weights[:4]]
    assert ["no session used" in one for one in gone] == [False, False, True, True]
    assert not any("--max-weights" in one for one in gone)
    assert len(models.closed) == 2


@pytest.mark.parametrize("fault", ["file", "store"])
def test_a_reload_that_fails_leaves_no_pool(weights, tmp_path, monkeypatch, fault):
    (a, b), models = two_models(weights[0], tmp_path)
    engines = []

    def counted(*arguments):
        engines.append(Engine(*arguments))
        return engines[-1]

    async def failing():
        raise StoreError("gone")

    monkeypatch.setattr(models_module, "Engine", counted)
    if fault == "file":
        b.write_bytes(b"no model")
    with pytest.raises((TsmError, StoreError)):
        reloaded(models, a, weights[1], used=failing)
    assert not engines and [len(one) for one in models.engines.values()] == [1, 1]


def test_weights_of_a_session_that_is_only_in_a_failed_write(files):
    class Failing(MemoryStore):
        def apply(self, operations):
            raise StoreError("gone")

    async def main():
        async with sessions_of(files["lm"], Failing(), behind=True) as sessions:
            await ask(sessions, "user", "s")
            sessions.hot.clear()  # as if other streams needed the memory
            (engine,) = sessions.models.all()
            assert await sessions._weights_in_use() == {("m", engine.model.fingerprint)}

    asyncio.run(main())


def test_pieces_without_their_package(tmp_path, monkeypatch):
    """A server with such a model does not start, instead of refusing its requests."""
    pieces = train_sentencepiece((f"{i} the old sailor of {i * i} ships" for i in range(200)), 300)
    tokenizer = SentencePieceTokenizer(pieces)
    symbols = tokenizer.vocab_symbols()
    assets = {"dict.txt": Vocab(symbols, [1] * len(symbols)).dumps(), "sentencepiece.model": pieces}
    model = build_model("lstm_lm", vocab_size=len(symbols), decoder_hidden_size=4)
    package.package(model, tmp_path / "m.tsm", assets=assets, tokenizer="sentencepiece")
    sources = [Source("m", str(tmp_path / "m.tsm"))]
    assert Models(sources, Limits(), "float32", 1).first == "m"
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match=r"model m: .*run: pip install sentencepiece"):
        Models(sources, Limits(), "float32", 1)


def replace(path, file):
    new = path.with_name("new")
    new.write_bytes(file.read_bytes())
    new.replace(path)
