"""Trained models with their checkpoints, made by the real commands, once per session."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "sang", "on", "under", "near", "mat"]
WORDS += ["tree", "house", "and", "then", "slowly"]
SMALL = ["--cpu", "--log-format", "none", "--no-epoch-checkpoints", "--max-update", "30"]


def sentences(seed: int, lines: int) -> str:
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    made = [" ".join(rng.choices(WORDS, weights, k=rng.randint(3, 9))) for _ in range(lines)]
    return "\n".join(made) + "\n"


def run_train(data: Path, save: Path, arch: str, *more: str) -> Path:
    assert train([str(data), *SMALL, "--arch", arch, "--save-dir", str(save), *more]) == 0
    return save / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for split, seed, lines in (("train", 1, 200), ("valid", 2, 40), ("test", 3, 40)):
        (folder / f"{split}.txt").write_text(sentences(seed, lines))
    return folder


def prepared(texts: Path, name: str, *more: str) -> Path:
    out = texts / name
    files = [f for s in ("train", "valid", "test") for f in (f"--{s}pref", str(texts / f"{s}.txt"))]
    assert preprocess([*files, "--destdir", str(out), *more]) == 0
    return out


@pytest.fixture(scope="session")
def word(texts):
    """A trained power-law word model: data, path of the checkpoint, text."""
    data = prepared(texts, "word")
    flags = ("--decoder-embed-dim", "8", "--decoder-hidden-size", "12", "--decoder-layers", "2")
    path = run_train(data, texts / "word-run", "plstm_lm", *flags, "--batch-size", "4")
    return SimpleNamespace(data=data, path=path, text=(texts / "test.txt").read_text())


@pytest.fixture(scope="session")
def char(texts):
    """A trained character LSTM with one-hot input."""
    data = prepared(texts, "char", "--tokenizer", "char")
    flags = ("--decoder-embed-dim", "0", "--decoder-hidden-size", "12", "--lr", "0.02")
    path = run_train(data, texts / "char-run", "lstm_lm", *flags)
    return SimpleNamespace(data=data, path=path, text=(texts / "test.txt").read_text())


@pytest.fixture(scope="session")
def waves(tmp_path_factory):
    """A trained classifier of waves sampled at uneven times, with values, dt and lengths; its data is generated
    on the fly."""
    folder = tmp_path_factory.mktemp("waves")
    more = ["--task", "frequency", "--frequency-sampling", "async", "--frequency-train", "64"]
    more += [
        "--frequency-valid",
        "48",
        "--max-update",
        "4",
        "--decoder-hidden-size",
        "8",
        "--save-dir",
        str(folder),
    ]
    assert train([*SMALL, "--arch", "plstm_classifier_frequency", *more]) == 0
    return folder / "checkpoint_best.pt"
