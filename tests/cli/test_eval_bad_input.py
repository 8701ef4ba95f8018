"""tsm-eval: bad input gives one sentence and exit code 2; no half-written file remains."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import torch

from tsm.plugin.cli.preprocess import main as preprocess


class Bomb:
    """A pickle that would write a file when loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_checkpoint_that_is_not_there(run_eval, fails, tmp_path):
    fails(run_eval("--path", tmp_path / "no.pt"), "no.pt does not exist")


def test_truncated_checkpoint(run_eval, fails, tmp_path, word):
    data = word.path.read_bytes()
    for size in (0, 1, 10, 30, 100, 1000, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.pt").write_bytes(data[:size])
        fails(run_eval("--path", tmp_path / "cut.pt"), "cut.pt is not a tsm checkpoint")


def test_noise_for_a_checkpoint(run_eval, fails, tmp_path):
    rng = random.Random(0)
    for _ in range(100):
        (tmp_path / "noise.pt").write_bytes(rng.randbytes(rng.randint(0, 100)))
        fails(run_eval("--path", tmp_path / "noise.pt"), "noise.pt is not a tsm checkpoint")


def test_pickles_are_not_executed(run_eval, fails, tmp_path):
    torch.save({"model": Bomb(tmp_path / "ran")}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Bomb(tmp_path / "ran"), protocol=2))
    for name in ("a.pt", "b.pt"):
        fails(run_eval("--path", tmp_path / name), f"{name} is not a tsm checkpoint")
    assert not (tmp_path / "ran").exists()


def test_wrong_dictionary(run_eval, fails, tmp_path, word, reviews):
    (tmp_path / "t.txt").write_text("other words here\n")
    names = [f for s in ("train", "valid", "test") for f in (f"--{s}pref", str(tmp_path / "t.txt"))]
    assert preprocess([*names, "--destdir", str(tmp_path / "data")]) == 0
    result = run_eval(tmp_path / "data", "--path", word.path)
    fails(result, "the dictionary of", "does not fit the checkpoint", "4 symbols", "18 symbols")
    fails(run_eval(reviews.data, "--path", word.path), "preprocessed for classification")
    fails(run_eval(word.data, "--path", reviews.path), "preprocessed for language_modeling")


def test_unknown_split(run_eval, fails, word, reviews, tagger):
    fails(run_eval("--path", word.path, "--gen-subset", "tset"), "'tset'", "train, valid, test")
    fails(run_eval("--path", reviews.path, "--gen-subset", "tset"), "'tset'", "valid, test")
    fails(run_eval("--path", tagger, "--gen-subset", "tset"), "'tset'", "valid, test")


def test_flags(run_eval, fails, word, reviews, tmp_path):
    fails(run_eval("--path", word.path, "--bach-size", 3), "did you mean --batch-size or")
    fails(
        run_eval("--path", word.path, "--batch-size", 0), "--batch-size", "an integer of at least 1"
    )
    fails(run_eval("--path", word.path, "a", "b"), "'b' is unexpected")
    fails(run_eval(), "--path")
    fails(run_eval("--path", word.path, "--by-length"), "--by-length is for sequences")
    fails(run_eval("--path", word.path, "--length-bins", "5"), "requires --by-length")
    bins = ("--path", reviews.path, "--by-length", "--length-bins", "9,5")
    fails(run_eval(*bins), "increasing integers")
    fails(run_eval("--path", word.path, "--baselines"), "character models")
    fails(run_eval("--path", reviews.path, "--frequency-bins"), "is for language models")
    for flag in (
        "--dynamic-lr",
        "--dynamic-decay",
        "--cache-size",
        "--cache-theta",
        "--cache-lambda",
    ):
        fails(run_eval("--path", reviews.path, flag, "1"), f"{flag} is for language models")
    file = tmp_path / "p.tsv"
    probs = ("--path", word.path, "--output-word-probs", file, "--batch-size", 2)
    fails(run_eval(*probs), "accepted with --output-word-probs: 1")
    assert not file.exists()
    many = ("--path", word.path, "--batch-size", 100_000)
    fails(run_eval(*many), "too few for batch size 100000")
    fails(run_eval("--path", word.path, "--user-dir", tmp_path / "no"), "no such folder")


def test_data_that_is_not_there(run_eval, fails, tmp_path, word):
    fails(run_eval(tmp_path / "no", "--path", word.path), "does not exist; make it with")
    moved = word.data.with_name("away")
    word.data.rename(moved)
    try:
        fails(
            run_eval("--path", word.path),
            "which does not exist here; give the folder: tsm-eval DATA",
        )
    finally:
        moved.rename(word.data)


def test_output_that_cannot_be_written(run_eval, fails, tmp_path, word):
    for flag in ("--json", "--output-word-probs"):
        fails(run_eval("--path", word.path, flag, tmp_path / "no" / "file"), "no")


def test_weights_that_diverged(run_eval, tmp_path, word):
    checkpoint = torch.load(word.path, weights_only=True)
    checkpoint["model"]["decoder.bias"][:] = float("nan")
    torch.save(checkpoint, tmp_path / "nan.pt")
    file = tmp_path / "p.tsv"
    code, _, err = run_eval("--path", tmp_path / "nan.pt", "--output-word-probs", file)
    assert code == 2 and "decoder.bias" in err
    assert [p.name for p in tmp_path.iterdir()] == ["nan.pt"]
