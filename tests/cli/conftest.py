"""Tiny models of every kind, made once per session by the real tsm-preprocess and tsm-train."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tsm.plugin.cli import eval as eval_command
from tsm.plugin.cli import generate as generate_command
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "ran", "sang", "on", "under", "near", "mat"]
WORDS += ["tree", "house", "and", "then", "slowly"]
SMALL = ["--cpu", "--log-format", "none", "--no-epoch-checkpoints", "--max-update", "6"]
SMALL += ["--decoder-hidden-size", "12"]


def sentences(seed: int, lines: int) -> str:
    """Lines of 3 to 9 words; the first words of WORDS are the most frequent."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    made = [" ".join(rng.choices(WORDS, weights, k=rng.randint(3, 9))) for _ in range(lines)]
    return "\n".join(made) + "\n"


def run_train(data: Path | None, save: Path, arch: str, *more: str) -> Path:
    where = [] if data is None else [str(data)]
    flags = [*SMALL, "--arch", arch, "--save-dir", str(save), *more]
    assert train([*where, *flags]) == 0
    return save / "checkpoint_best.pt"


def run_preprocess(folder: Path, name: str, *more: str) -> Path:
    out = folder / name
    texts = [
        f for s in ("train", "valid", "test") for f in (f"--{s}pref", str(folder / f"{s}.txt"))
    ]
    assert preprocess([*texts, "--destdir", str(out), *more]) == 0
    return out


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for split, seed, lines in (("train", 1, 300), ("valid", 2, 40), ("test", 3, 60)):
        (folder / f"{split}.txt").write_text(sentences(seed, lines))
    return folder


@pytest.fixture(scope="session")
def word(texts):
    data = run_preprocess(texts, "word")
    flags = ("--decoder-embed-dim", "8", "--batch-size", "4", "--lr", "0.01")
    path = run_train(data, texts / "word-run", "plstm_lm", "--decoder-layers", "2", *flags)
    return SimpleNamespace(data=data, path=path, text=(texts / "test.txt").read_text())


@pytest.fixture(scope="session")
def few_words(texts):
    """Its dictionary has an <unk>."""
    data = run_preprocess(texts, "few-words", "--nwords", "8")
    flags = ("--decoder-embed-dim", "8", "--batch-size", "4")
    return SimpleNamespace(path=run_train(data, texts / "few-words-run", "lstm_lm", *flags))


@pytest.fixture(scope="session")
def char(texts):
    data = run_preprocess(texts, "char", "--tokenizer", "char")
    path = run_train(
        data, texts / "char-run", "lstm_lm", "--decoder-embed-dim", "0", "--lr", "0.02"
    )
    return SimpleNamespace(data=data, path=path, text=(texts / "test.txt").read_text())


@pytest.fixture(scope="session")
def pieces(texts):
    pytest.importorskip("sentencepiece")
    data = run_preprocess(texts, "pieces", "--bpe", "sentencepiece", "--vocab-size", "290")
    flags = ("--decoder-embed-dim", "8", "--batch-size", "4")
    path = run_train(data, texts / "pieces-run", "plstm_lm", *flags)
    return SimpleNamespace(data=data, path=path, text=(texts / "test.txt").read_text())


@pytest.fixture(scope="session")
def reviews(tmp_path_factory):
    """A classifier of texts of very different lengths."""
    folder = tmp_path_factory.mktemp("reviews")
    rng, rows = random.Random(4), []
    for split, many in (("train", 40), ("test", 30)):
        for i in range(many):
            label = i % 2
            text = " ".join(rng.choices(WORDS[:8] if label else WORDS[4:], k=rng.randint(1, 60)))
            rows.append(f"{split}\t{label}\t{i}\t5\t{text}")
    (folder / "imdb.tsv").write_text("\n".join(rows) + "\n")
    data = folder / "data"
    flags = ["--dataset", "imdb", "--from", str(folder), "--no-glove", "--allow-differences"]
    assert preprocess([*flags, "--destdir", str(data)]) == 0
    more = ("--decoder-embed-dim", "8", "--max-length", "40", "--batch-size", "8", "--lr", "0.05")
    path = run_train(data, folder / "run", "lstm_classifier", *more)
    return SimpleNamespace(data=data, path=path)


@pytest.fixture(scope="session")
def tagger(tmp_path_factory):
    """A model of a synthetic task."""
    more = ("--task", "copy", "--copy-length", "5", "--copy-train", "64", "--copy-valid", "32")
    return run_train(None, tmp_path_factory.mktemp("tagger"), "lstm_tagger", *more)


def runner(main, capsys):
    def call(*args) -> tuple[int, str, str]:
        capsys.readouterr()  # discards what fixtures printed if they were created for this test
        code = main([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def run_eval(capsys):
    """Runs `tsm-eval --cpu ...`; returns exit code, stdout, stderr."""
    return runner(lambda argv: eval_command.main(["--cpu", *argv]), capsys)


@pytest.fixture
def run_generate(capsys):
    return runner(lambda argv: generate_command.main(["--cpu", *argv]), capsys)


@pytest.fixture
def fails():
    """Checks that a run ended with code 2 and one sentence on stderr that contains all parts."""

    def check(result: tuple[int, str, str], *parts: str) -> None:
        code, _, err = result
        assert code == 2, err
        assert err.count("\n") == 1 and ": error: " in err and "Traceback" not in err, err
        for part in parts:
            assert part in err, err

    return check


@pytest.fixture
def exact():
    """bits(path, tokens): -log2 p of every token but the first, in float64 and in one pass."""
    from tsm.plugin import load_checkpoint
    from tsm.plugin.layers import Recurrent

    def bits(path: Path, tokens: list[int]) -> torch.Tensor:
        model = load_checkpoint(path).model.double()
        for layer in model.modules():
            if isinstance(layer, Recurrent):
                layer.backend = "reference"
        with torch.no_grad():
            logits, _ = model(torch.tensor([tokens[:-1]]))
        p = torch.softmax(logits[0], -1)[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])]
        return -torch.log2(p)

    return bits
