"""tsm-preprocess with bad input, a full disk or Ctrl-C: one sentence, exit code, no half-written files."""

from __future__ import annotations

import errno
import lzma
import os
import signal
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from own_text import TRAIN, digest, user_files
from tsm.plugin.data.build import text as build_text
from tsm.plugin.data.subword import MissingPackage

BAD = {
    "no input": ([], "one of --dataset NAME --from DIR, --trainpref FILE"),
    "no from": (["--dataset", "ptb"], "--dataset ptb needs --from"),
    "unknown data set": (["--dataset", "penn"], "invalid choice: 'penn'"),
    "unknown flag": (["--trainpref", "train.txt", "--wokers", "2"], "--wokers"),
    "both": (["--dataset", "ptb", "--from", ".", "--trainpref", "train.txt"], "give one of"),
    "no train": (["--validpref", "valid.txt"], "--trainpref is needed"),
    "missing file": (["--trainpref", "nowhere.txt"], "nowhere.txt does not exist"),
    "workers": (
        ["--trainpref", "train.txt", "--workers", "0"],
        "--workers is 0; accepted: 1 to 256",
    ),
    "threshold": (["--trainpref", "train.txt", "--threshold", "-1"], "--threshold is -1"),
    "nwords": (["--trainpref", "train.txt", "--nwords", "1"], "--nwords is 1"),
    "seed": (["--trainpref", "train.txt", "--seed", "-1"], "seed is -1"),
    "vocab size alone": (["--trainpref", "train.txt", "--vocab-size", "9"], "requires --bpe"),
    "bpe alone": (
        ["--trainpref", "train.txt", "--bpe", "sentencepiece"],
        "needs either --vocab-size",
    ),
    "bpe of characters": (
        [
            "--trainpref",
            "train.txt",
            "--tokenizer",
            "char",
            "--bpe",
            "sentencepiece",
            "--vocab-size",
            "300",
        ],
        "made of characters",
    ),
    "bpe and threshold": (
        [
            "--trainpref",
            "train.txt",
            "--threshold",
            "2",
            "--bpe",
            "sentencepiece",
            "--vocab-size",
            "300",
        ],
        "cannot be combined with --bpe",
    ),
    "too many pieces": (
        ["--trainpref", "train.txt", "--bpe", "sentencepiece", "--vocab-size", "9999"],
        "--vocab-size is 9999; accepted with this text: up to ",
    ),
    "parquet": (
        ["--trainpref", "t.parquet"],
        "t.parquet: Parquet files are not read; accepted: CSV",
    ),
    "parquet of numbers": (
        ["--trainpref", "t.parquet", "--sequence-column", "a", "--label-column", "b"],
        "Parquet files are not read",
    ),
    "excel": (["--trainpref", "t.xlsx", "--split", ".8,.1,.1"], "Excel files are not read"),
    "glove": (["--trainpref", "train.txt", "--no-glove"], "require --dataset imdb"),
    "empty train": (["--trainpref", "empty.txt"], "split train is empty"),
    "empty valid": (
        ["--trainpref", "train.txt", "--validpref", "empty.txt"],
        "split valid is empty",
    ),
    "not text": (["--trainpref", "binary.txt"], "not UTF-8"),
    "cut xz": (["--trainpref", "cut.txt.xz"], "cut.txt.xz is damaged or cut short"),
    "dictionary": (["--trainpref", "train.txt", "--srcdict", "binary.txt"], "not UTF-8"),
    "empty folder": (["--dataset", "ptb", "--from", "hole"], "PTB train split not found"),
    "no folder": (["--dataset", "mnist", "--from", "nowhere"], "--from nowhere does not exist"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_writes_nothing(run, fails, text, monkeypatch, case):
    if "piece" in case:
        pytest.importorskip("sentencepiece")
    monkeypatch.chdir(text)
    Path("empty.txt").write_text("")
    Path("binary.txt").write_bytes(b"\xff\xfe\x00\n")
    Path("cut.txt.xz").write_bytes(lzma.compress(TRAIN.encode() * 50)[:-20])
    Path("hole").mkdir()
    before = sorted(os.listdir())
    args, message = BAD[case]
    fails(run(*args, "--destdir", "out"), message)
    assert sorted(os.listdir()) == before


def test_destdir_is_needed(run, fails, text):
    fails(run(*user_files(text, "train")), "--destdir")


def test_full_disk_leaves_nothing_and_keeps_the_old(run, fails, text, monkeypatch):
    args = (*user_files(text, "train"), "--destdir", text / "out")
    assert run(*args)[0] == 0
    before, names = digest(text / "out"), sorted(os.listdir(text))

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    fails(run(*args, "--overwrite", "--threshold", 2), "No space left on device")
    assert digest(text / "out") == before
    assert sorted(os.listdir(text)) == names


@pytest.fixture
def heard():
    """Makes Ctrl-C raise KeyboardInterrupt, even if the tests run as a background job of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_leaves_nothing(run, text, monkeypatch, number):
    def interrupt(*args, **kwargs):
        signal.raise_signal(number)

    monkeypatch.setattr(build_text, "binarize", interrupt)
    before = sorted(os.listdir(text))
    code, _, err = run(*user_files(text, "train"), "--destdir", text / "out")
    assert code == 130
    assert err == "tsm-preprocess: error: interrupted; nothing was written\n"
    assert sorted(os.listdir(text)) == before


@pytest.mark.parametrize("error", [MissingPackage("no pieces"), MemoryError(), BrokenProcessPool()])
def test_what_is_no_bad_input_is_one_sentence_too(run, fails, text, monkeypatch, error):
    def stop(*args, **kwargs):
        raise error

    monkeypatch.setattr(build_text, "binarize", stop)
    before = sorted(os.listdir(text))
    result = run(*user_files(text, "train"), "--destdir", text / "out")
    fails(result, str(error) or type(error).__name__)
    assert sorted(os.listdir(text)) == before
