"""tsm-preprocess on a user's own text: output, summary, workers, bad input, and no half-written files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from own_text import TRAIN, digest, user_files
from tsm.plugin.data import Corpus, DataDir, Vocab
from tsm.plugin.data.build import pipeline

SRC = Path(__file__).resolve().parents[2] / "src"


def test_words(run, text):
    code, out, err = run(*user_files(text, "train", "valid"), "--destdir", text / "out")
    assert (code, err) == (0, "")
    data = DataDir(text / "out")
    assert data.vocab.symbols == ("<eos>", "cat", "sat", "the", "a", "dog", "ran")
    assert data.vocab.counts.tolist() == [4, 2, 2, 2, 1, 1, 1]
    train = data.corpus("train")
    train.verify()
    assert data.tokenizer.decode(train.read(0, len(train)), data.vocab) == TRAIN
    assert train.items == 4
    assert data.meta.splits["train"]["tokens"] == 13
    assert data.meta.splits["valid"]["types"] == 4
    assert data.meta.unk_id is None
    assert out.splitlines()[0].split() == ["split", "lines", "tokens", "types", "unk", "size"]
    assert out.splitlines()[2].split()[:5] == ["train", "4", "13", "7", "0.00%"]
    assert sorted(p.name for p in (text / "out").iterdir()) == sorted(
        [*data.meta.files, "meta.json"]
    )


def test_an_unseen_symbol_adds_unk_last_and_says_so(run, text):
    code, out, _ = run(*user_files(text, "train", "valid", "test"), "--destdir", text / "out")
    assert code == 0
    assert "test has 1 tokens that are not in the dictionary: <unk> added" in out
    data = DataDir(text / "out")
    assert data.vocab.symbols[-1] == "<unk>"
    assert data.meta.unk_id == 7 == data.corpus("test").read(1, 2)[0]
    assert data.vocab.counts[-1] == 0
    assert data.corpus("train").vocab_size == 7


def test_threshold_and_nwords(run, text):
    files = user_files(text, "train", "valid")
    assert run(*files, "--destdir", text / "t", "--threshold", 2)[0] == 0
    assert DataDir(text / "t").vocab.symbols == ("<eos>", "cat", "sat", "the", "<unk>")
    assert DataDir(text / "t").meta.splits["train"]["unk"] == 3
    assert run(*files, "--destdir", text / "n", "--nwordssrc", 3)[0] == 0
    assert DataDir(text / "n").vocab.symbols == ("<eos>", "cat", "<unk>")


def test_characters_keep_every_byte(run, text):
    (text / "train.txt").write_bytes(b"a b\r\n\tc\\ \xc3\xa9")
    args = ("--trainpref", text / "train.txt", "--tokenizer", "char", "--destdir", text / "out")
    assert run(*args)[0] == 0
    data = DataDir(text / "out")
    corpus = data.corpus("train")
    assert data.tokenizer.decode(corpus.read(0, len(corpus)), data.vocab) == "a b\r\n\tc\\ é"
    assert data.meta.splits["train"]["lines"] == 2


def test_existing_dictionary(run, text):
    Vocab(["<unk>", "sat", "the", "<eos>"], [0, 1, 1, 1]).save(text / "d.txt")
    args = user_files(text, "valid")
    assert run(*args, "--srcdict", text / "d.txt", "--destdir", text / "out")[0] == 0
    data = DataDir(text / "out")
    assert data.corpus("valid").read(0, 4).tolist() == [2, 0, 0, 3]
    assert data.vocab == Vocab.load(text / "d.txt")


@pytest.mark.parametrize("tokenizer", ["word", "char", "char_ptb"])
def test_workers_do_not_change_a_byte(run, text, tokenizer, monkeypatch):
    monkeypatch.setattr(pipeline, "CHUNK", 500)
    words = [f"w{i * i % 97}" for i in range(2000)]
    (text / "train.txt").write_text(
        "\n".join(" ".join(words[i : i + 7]) for i in range(0, 2000, 5))
    )
    for workers in (1, 3):
        args = (*user_files(text, "train", "valid"), "--tokenizer", tokenizer, "--threshold", 2)
        assert run(*args, "--workers", workers, "--destdir", text / f"out{workers}")[0] == 0
    assert digest(text / "out1") == digest(text / "out3")


def test_chunk_size_does_not_change_a_byte(run, text, monkeypatch):
    args = user_files(text, "train", "valid")
    assert run(*args, "--destdir", text / "a")[0] == 0
    monkeypatch.setattr(pipeline, "CHUNK", 1)
    assert run(*args, "--destdir", text / "b")[0] == 0
    assert digest(text / "a") == digest(text / "b")


def test_sentencepiece(run, text):
    pytest.importorskip("sentencepiece")
    lines = [
        f"{a}{b} and {b}{a}ing <unk>" for a in ("sto", "gra", "mee") for b in ("ne", "il", "pper")
    ]
    (text / "train.txt").write_text("\n".join(lines * 3) + "\n")
    args = ("--bpe", "sentencepiece", "--vocab-size", 280)
    for workers in (1, 2):
        files = user_files(text, "train", "valid")
        code, _, err = run(*files, *args, "--workers", workers, "--destdir", text / f"o{workers}")
        assert code == 0, err
    assert digest(text / "o1") == digest(text / "o2")
    data = DataDir(text / "o1")
    assert len(data.vocab) == 280
    for split, original in (("train", "\n".join(lines * 3) + "\n"), ("valid", "the dog ran\n")):
        corpus = data.corpus(split)
        assert data.tokenizer.decode(corpus.read(0, len(corpus)), data.vocab) == original
    assert data.meta.splits["train"]["words"] == sum(len(x.split()) + 1 for x in lines * 3)
    train = data.corpus("train").read(0, len(data.corpus("train")))
    assert data.vocab.counts.sum() == len(train)
    model = ("--sentencepiece-model", text / "o1" / "sentencepiece.model")  # implies --bpe
    assert run(*user_files(text, "valid"), *model, "--destdir", text / "o3")[0] == 0
    assert (text / "o3" / "valid.bin").read_bytes() == (text / "o1" / "valid.bin").read_bytes()


def test_missing_sentencepiece_names_the_extra(run, fails, text, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    args = (*user_files(text, "train"), "--bpe", "sentencepiece", "--vocab-size", 280)
    fails(run(*args, "--destdir", text / "out"), "pip install 'timescale-models[train]'")
    assert not (text / "out").exists()


def test_an_earlier_output_is_replaced_and_nothing_else_is(run, fails, text):
    args = (*user_files(text, "train"), "--destdir", text / "out")
    assert run(*args)[0] == 0
    assert run(*args, "--overwrite", "--tokenizer", "char")[0] == 0
    assert json.loads((text / "out" / "meta.json").read_text())["tokenizer"]["kind"] == "char"
    (text / "out" / "thesis.tex").write_text("years of work")
    fails(run(*args, "--overwrite"), "thesis.tex", "did not write")
    assert (text / "out" / "thesis.tex").read_text() == "years of work"
    (text / "empty").mkdir()
    assert run(*user_files(text, "train"), "--destdir", text / "empty")[0] == 0
    fails(run(*user_files(text, "train"), "--destdir", text / "train.txt"), "is a file")


def test_as_a_module_without_torch_in_a_pipe(text):
    """`python -m` works with 2 processes, prints nothing extra, and never loads torch."""
    command = [
        sys.executable,
        "-m",
        "tsm.plugin.cli.preprocess",
        *user_files(text, "train", "valid"),
    ]
    env = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [*command, "--workers", "2", "--destdir", str(text / "out")],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    Corpus(text / "out" / "train").verify()
    probe = (
        "import sys, tsm.plugin.cli.preprocess; "
        "print('torch' in sys.modules, 'sentencepiece' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", probe], env=env, capture_output=True, text=True, check=True
    )
    assert out.stdout.split() == ["False", "False"]
