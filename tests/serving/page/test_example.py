"""What the page shows before anything is typed: read as if it had been typed, bounded, and never stored."""

from __future__ import annotations

import asyncio
import base64
import json
import string
import threading
import time
from contextlib import nullcontext, suppress
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from small_models import small, structures
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.data.tokenizers import TOKENIZERS
from tsm.plugin.data.vocab import Vocab
from tsm.runtime import Model
from tsm.runtime.serving.routes import page
from tsm.runtime.serving.streams.engine import memory_of
from tsm.runtime.serving.streams.example import DIGITS, STEPS, TEXT, TOP, example
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.transport.access import new_token
from tsm.runtime.serving.transport.limits import Limits

from ..server_process import serving


def pieces_of(model, limits=None):
    return json.loads(example(model, limits or Limits()))["pieces"]


MODELS = [("lm", None), *product(("classifier", "tagger"), (None, 2))]  # 2: numbers per step


@pytest.mark.parametrize(
    ("arch", "inputs"),
    [(arch, inputs) for family, inputs in MODELS for arch in structures(family)],
)
def test_it_is_what_a_stream_reads(arch, inputs, tmp_path):
    """Tokens that were generated or drawn at random, or a wave; the states are those of a stream that reads
    them."""
    package(small(arch, inputs), tmp_path / "model.tsm")
    loaded = Model.load(tmp_path / "model.tsm")
    pieces, twin, scorer = pieces_of(loaded), loaded.create_stream(), loaded.create_stream()
    assert len(pieces) == STEPS and pieces == pieces_of(loaded)
    for number, piece in enumerate(pieces):
        (text,) = piece["texts"]
        if loaded.takes_tokens:
            chunk = np.array([int(text)])
            assert piece["typed"] == f"{text} "
        else:
            chunk = np.full((1, loaded.input_size), float(text), np.float32)
            assert piece["typed"] == ""
        last = twin.feed(chunk, last_only=True)
        if loaded.family == "lm":
            assert piece["log_probs"] == scorer.score(chunk).tolist()
            assert piece["top"][0]["token"] == last.argmax()
        else:
            assert piece["logits"] == last.tolist()
        assert base64.b64decode(piece["state"]) == twin.save_state()
        assert piece["memory"] == memory_of(twin, DIGITS)
        assert piece["memory"]["position"] == number + 1


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("complete", [True, False], ids=["all", "without h"])
def test_its_text(kind, complete, tmp_path):
    """The text above if the dictionary has all of it, else one that the model generates."""
    words = [*string.ascii_lowercase, " "] if kind.startswith("char") else TEXT.split()
    known = sorted({"_" if kind == "char_ptb" and word == " " else word for word in words})
    known = known if complete else [word for word in known if not word.startswith("h")]
    sizes = dict(vocab_size=len(known), decoder_hidden_size=3, decoder_embed_dim=2)
    vocab = Vocab(known, [1] * len(known)).dumps()
    path = tmp_path / "model.tsm"
    package(build_model("plstm_lm", **sizes), path, assets={"dict.txt": vocab}, tokenizer=kind)
    pieces = pieces_of(Model.load(path))
    typed = "".join(piece["typed"] for piece in pieces)
    assert typed.strip() == TEXT if complete else "h" not in {piece["typed"][0] for piece in pieces}
    assert len(pieces) > 10
    assert [text for piece in pieces for text in piece["texts"]] == [
        piece["typed"].strip() or " " for piece in pieces
    ]


@pytest.mark.parametrize(("arch", "outputs"), [("plstm_lm", TOP), ("lstm_classifier", 500)])
def test_a_large_model_reads_less(arch, outputs, tmp_path):
    """Its states and its outputs count."""
    more = {} if arch == "plstm_lm" else {"num_classes": outputs}
    sizes = dict(vocab_size=11, decoder_hidden_size=6, decoder_embed_dim=5, **more)
    package(build_model(arch, **sizes), tmp_path / "model.tsm")
    model = Model.load(tmp_path / "model.tsm")
    numbers = outputs + sum(
        layer.size for layers in model.create_stream().state().values() for layer in layers
    )
    for limits, steps in (
        (Limits(numbers=5 * numbers), 5),
        (Limits(numbers=5 * numbers - 1), 4),
        (Limits(numbers=1), 1),
        (Limits(tokens=7), 7),
    ):
        assert len(pieces_of(model, limits)) == steps


def test_numbers_that_are_not_finite(tmp_path):
    """JSON has none: the page gets an error that it can read."""
    for name, arch in (("outputs", "lstm_tagger"), ("states", "min_gru_tagger")):
        large = small(arch, 2)
        with torch.no_grad():
            large.layers[0].weight_x.fill_(3e38)
            large.decoder.weight.fill_(3e38 * (name == "outputs"))
        package(large, tmp_path / f"{name}.tsm")
    with serving(tmp_path / "outputs.tsm", tmp_path / "states.tsm") as server:
        for name, reason in (("outputs", "not JSON compliant"), ("states", "no longer finite")):
            refused = server.ask("GET", f"/v1/models/{name}/example")
            assert refused.status == 409 and reason in refused.json["detail"], refused.body


def test_it_is_computed_once_and_not_stored(server, name):
    before = server.get("/v1/sessions")
    first = server.ask("GET", "/v1/models/lm/example")
    assert first.headers["content-type"] == "application/json"
    assert first.body == server.ask("GET", "/v1/models/lm/example").body
    assert server.get("/v1/sessions") == before
    last = first.json["pieces"][-1]
    path = f"/v1/sessions/{name}"
    put = server.ask("PUT", f"{path}/state?model=lm", base64.b64decode(last["state"]))
    assert (put.status, put.json["position"]) == (200, len(TEXT))
    server.post(f"{path}-typed/feed", text=TEXT)
    further = [server.post(f"{one}/score", text=" a") for one in (path, f"{path}-typed")]
    assert further[0] == further[1]


def test_requests_at_once_compute_it_once(files, monkeypatch):
    calls = []

    def slow(model, limits):
        calls.append(model)
        time.sleep(0.05)
        return example(model, limits)

    async def together():
        models = Models([Source("lm", str(files["lm"]))], Limits(), "float32", 1)
        service = SimpleNamespace(models=models, limits=Limits(), work=nullcontext)
        return await asyncio.gather(*(page.example(service, None, "lm") for _ in range(5)))

    monkeypatch.setattr(page, "example_of", slow)
    bodies = {answer.body for answer in asyncio.run(together())}
    assert len(bodies) == len(calls) == 1


def test_a_client_that_leaves_does_not_start_it_again(files, monkeypatch):
    calls, go_on = [], threading.Event()

    def slow(model, limits):
        calls.append(model)
        assert go_on.wait(60)
        return example(model, limits)

    async def main():
        models = Models([Source("lm", str(files["lm"]))], Limits(), "float32", 1)
        service = SimpleNamespace(models=models, limits=Limits(), work=nullcontext)
        for _ in range(3):
            request = asyncio.ensure_future(page.example(service, None, "lm"))
            while not calls:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0)
            request.cancel()
            with suppress(asyncio.CancelledError):
                await request
        last = asyncio.ensure_future(page.example(service, None, "lm"))
        await asyncio.sleep(0.05)
        go_on.set()
        return (await last).body

    monkeypatch.setattr(page, "example_of", slow)
    assert asyncio.run(main()) == example(calls[0], Limits()) and len(calls) == 1


def test_it_is_computed_again_after_an_error(files, monkeypatch):
    async def main():
        models = Models([Source("lm", str(files["lm"]))], Limits(), "float32", 1)
        service = SimpleNamespace(models=models, limits=Limits(), work=nullcontext)
        monkeypatch.setattr(page, "example_of", lambda model, limits: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await page.example(service, None, "lm")
        monkeypatch.setattr(page, "example_of", example)
        return await page.example(service, None, "lm")

    assert json.loads(asyncio.run(main()).body)["pieces"]


def test_it_needs_the_token(files, tmp_path):
    (token, line) = new_token("ann")
    (tmp_path / "tokens").write_text(line + "\n")
    with serving(files["lm"], "--token-file", tmp_path / "tokens") as guarded:
        assert guarded.ask("GET", "/").status == 200
        assert guarded.ask("GET", "/v1/models/lm/example").status == 401
        guarded.token = token
        assert guarded.get("/v1/models/lm/example")["pieces"]
        assert guarded.ask("GET", "/v1/models/none/example").status == 404
