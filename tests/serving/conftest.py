"""Fixtures: each kind of store, empty; small models as .tsm files; a server that most tests share."""

from __future__ import annotations

import string

import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.data.labels import dump_labels
from tsm.plugin.data.vocab import Vocab
from tsm.runtime import Model

from . import stores
from .server_process import serving

SYMBOLS = [*string.ascii_lowercase, " "]
SIZES = {"decoder_hidden_size": 12, "decoder_layers": 2}


def _opened(request, tmp_path):
    if request.param == "redis" and (why := stores.no_redis()):
        pytest.skip(why)
    with stores.KINDS[request.param](tmp_path) as found:
        yield found


opened = pytest.fixture(_opened, params=stores.KINDS, name="opened")
durable = pytest.fixture(_opened, params=stores.DURABLE, name="durable")


@pytest.fixture
def store(opened):
    store = opened.open()
    yield store
    store.close()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Models: `lm` and `other` (the same with new weights) read characters; `words` reads words; `ids` has no
    dictionary; `tagger` reads numbers and has class names; `moods` reads characters and has two classes."""
    folder = tmp_path_factory.mktemp("served")
    torch.manual_seed(22)
    vocab = Vocab(SYMBOLS, [1] * len(SYMBOLS))
    text = {"assets": {"dict.txt": vocab.dumps()}, "tokenizer": "char"}
    lm = {"vocab_size": len(SYMBOLS), "decoder_embed_dim": 8}
    words = Vocab([*"abcdefgh", "<eos>"], [1] * 9)
    made = {
        "lm": ("plstm_lm", lm, text),
        "other": ("plstm_lm", lm, text),
        "ids": ("lstm_lm", {"vocab_size": 20, "decoder_embed_dim": 8}, {}),
        "tagger": (
            "plstm_tagger",
            {"input_size": 5, "num_classes": 3},
            {"assets": {"labels.txt": dump_labels(["up", "to go", "down"])}},
        ),
        "moods": ("lstm_classifier", {"vocab_size": len(SYMBOLS), "num_classes": 2}, text),
        "words": (
            "plstm_lm",
            {"vocab_size": 9, "decoder_embed_dim": 8},
            {"assets": {"dict.txt": words.dumps()}, "tokenizer": "word"},
        ),
    }
    for name, (arch, options, more) in made.items():
        package(build_model(arch, **SIZES, **options), folder / f"{name}.tsm", **more)
    return {name: folder / f"{name}.tsm" for name in made}


@pytest.fixture(scope="session")
def model(files):
    return Model.load(files["lm"])


@pytest.fixture(scope="session")
def server(files, tmp_path_factory):
    """A server with a SQLite store and the models lm, ids and tagger."""
    where = f"sqlite:{tmp_path_factory.mktemp('store')}/states.db"
    models = (files["lm"], files["ids"], files["tagger"])
    with serving(*models, "--store", where, "--max-tokens", 10**9) as found:
        yield found
        assert found.stop() == 0
        said = found.process.stderr.read()
        assert '"event": "error"' not in said and "Traceback" not in said, said


@pytest.fixture
def name(request):
    """A session id that only this test uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:60]
