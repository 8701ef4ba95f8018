"""Small models as .tsm files, one per family and kind of input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.runtime import Model

SIZES = dict(decoder_hidden_size=12, decoder_layers=2)
MODELS = {
    "lm": ("plstm_lm", dict(vocab_size=20, decoder_embed_dim=8)),
    "other": ("plstm_lm", dict(vocab_size=20, decoder_embed_dim=8)),  # other weights
    "timeless": ("lstm_lm", dict(vocab_size=20, decoder_embed_dim=0)),
    "nru": ("nru_lm", dict(vocab_size=20, decoder_embed_dim=8)),
    "classifier": ("plstm_classifier", dict(vocab_size=20, num_classes=3, decoder_embed_dim=8)),
    "tagger": ("plstm_tagger", dict(input_size=5, num_classes=4)),
    "exploding": ("nru_tagger", dict(input_size=5, num_classes=4)),
}


@pytest.fixture(scope="session")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(20210601)
    paths = {}
    for name, (arch, options) in MODELS.items():
        paths[name] = folder / f"{name}.tsm"
        package(build_model(arch, **SIZES, **options), paths[name])
    return paths


@pytest.fixture(scope="session")
def load(files):
    return lambda name, **options: Model.load(files[name], **options)


@pytest.fixture
def model(load) -> Model:
    """A language model whose cells take dt."""
    return load("lm")
