"""One flipped bit in any file of a data folder of any kind stops training before it begins."""

from __future__ import annotations

import random
import shutil

import numpy as np
import pytest

from tsm.plugin.cli.eval import main as evaluate
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train
from tsm.plugin.data import DataDir
from tsm.plugin.data.staged_folder import META, SUMS
from tsm.plugin.reproduce.stand_in import _write_digits, _write_reviews, _write_texts

SMALL = "--cpu --log-format none --max-update 1 --no-save --decoder-hidden-size 3 --batch-size 2"
TRAINING = {
    "word": "--arch lstm_lm",
    "char": "--arch lstm_lm",
    "pieces": "--arch lstm_lm",
    "reviews": "--arch lstm_classifier --task classification",
    "images": "--arch lstm_classifier --task smnist",
}


def write_glove(root):
    """A vector for every possible word."""
    words = {w for line in (root / "imdb.tsv").read_text().split("\n") for w in line.split()}
    row = " ".join(["0.5"] * 99 + ["-0.25"])
    (root / "glove.6B.100d.txt").write_text("".join(f"{w.lower()} {row}\n" for w in words))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """kind -> a folder of that kind."""
    root = tmp_path_factory.mktemp("kinds")
    texts = [f"--{split}pref={path}" for split, path in _write_texts(root).items()]
    _write_reviews(root)
    write_glove(root)
    _write_digits(root)
    known = ["--from", str(root), "--allow-differences"]
    flags = {
        "word": texts,
        "char": [*texts, "--tokenizer=char"],
        "pieces": [*texts, "--bpe=sentencepiece", "--vocab-size=300"],
        "reviews": ["--dataset=imdb", *known],
        "images": ["--dataset=mnist", *known],
    }
    for kind in TRAINING:
        assert preprocess([*flags[kind], "--destdir", str(root / kind)]) == 0
    assert (root / "reviews" / "embeddings.npy").is_file()
    return {kind: root / kind for kind in TRAINING}


def begins(folder, kind):
    return train([str(folder), *TRAINING[kind].split(), *SMALL.split()])


def flipped(path, chance):
    """Flip one bit of the file; returns the original content."""
    good = path.read_bytes()
    bad = bytearray(good)
    bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
    path.write_bytes(bad)
    return good


def attack(folder, kind, times, chance, capsys):
    """How many of `times` flips were detected; first each file is changed once, then files are drawn in
    proportion to their size."""
    files = sorted(folder.iterdir())
    sizes = [path.stat().st_size for path in files]
    turns = [*files, *chance.choices(files, sizes, k=max(times - len(files), 0))][:times]
    noticed = 0
    for path in turns:
        good = flipped(path, chance)
        code, said = begins(folder, kind), capsys.readouterr().err
        noticed += code == 2 and said.count("\n") == 1 and str(folder) in said
        path.write_bytes(good)
    assert begins(folder, kind) == 0
    return noticed


@pytest.mark.parametrize("kind", TRAINING)
def test_a_flipped_bit_in_any_file(made, kind, tmp_path, capsys):
    folder = shutil.copytree(made[kind], tmp_path / kind)
    files = len(list(folder.iterdir()))
    assert attack(folder, kind, files, random.Random(1), capsys) == files


@pytest.mark.nightly
@pytest.mark.parametrize("kind", TRAINING)
def test_400_flipped_bits(made, kind, tmp_path, capsys):
    folder = shutil.copytree(made[kind], tmp_path / kind)
    assert attack(folder, kind, 400, random.Random(2), capsys) == 400


def test_every_file_is_listed(made):
    for folder in made.values():
        names = {path.name for path in folder.iterdir()}
        listed = {line.split(" ", 2)[2] for line in (folder / SUMS).read_text().splitlines()}
        assert listed == names - {SUMS} and META in listed


@pytest.mark.parametrize("lost", ["dict.txt", "train.bin", SUMS])
def test_a_file_that_is_gone(made, tmp_path, lost):
    folder = shutil.copytree(made["word"], tmp_path / "word")
    (folder / lost).unlink()
    with pytest.raises(FileNotFoundError, match=f"{lost} is not there"):
        DataDir(folder)


@pytest.mark.parametrize("change", ["cut", "line twice", "line less"])
def test_checksums_that_are_not_of_this_folder(made, tmp_path, change):
    folder = shutil.copytree(made["word"], tmp_path / "word")
    good = (folder / SUMS).read_bytes()
    last = good[good.rindex(b"\n", 0, -1) + 1 :]
    bad = {"cut": good[:-1], "line twice": good + last, "line less": good[: -len(last)]}
    (folder / SUMS).write_bytes(bad[change])
    with pytest.raises(ValueError, match=rf"{SUMS}: damaged"):
        DataDir(folder)


def as_of_an_earlier_version(folder):
    import json

    (folder / SUMS).unlink()
    meta = json.loads((folder / META).read_text())
    meta["files"].remove(SUMS)
    (folder / META).write_text(json.dumps(meta, indent=2, sort_keys=True) + "\n")


@pytest.mark.parametrize("kind", TRAINING)
def test_a_folder_of_an_earlier_version(made, kind, tmp_path, capsys):
    """Training on a folder from an earlier version prints a warning that says how to add checksums; once they
    are added, there is no warning."""
    folder = shutil.copytree(made[kind], tmp_path / kind)
    as_of_an_earlier_version(folder)
    assert begins(folder, kind) == 0
    said = capsys.readouterr().err
    command = f"tsm-preprocess --add-checksums --destdir {folder}"
    assert said.startswith("tsm-train: warning: ") and said.count("\n") == 1 and command in said
    assert preprocess(command.split()[1:]) == 0
    capsys.readouterr()
    assert begins(folder, kind) == 0 and capsys.readouterr().err == ""
    flipped(folder / META, random.Random(3))
    assert begins(folder, kind) == 2


def test_the_splits_of_an_earlier_version_are_checked(made, tmp_path, capsys):
    """The crc32 in the index of a split reveals that a token was replaced by another."""
    folder = shutil.copytree(made["word"], tmp_path / "word")
    as_of_an_earlier_version(folder)
    tokens = np.fromfile(folder / "valid.bin", "<u2")
    tokens[5] = (tokens[5] + 1) % 3
    tokens.tofile(folder / "valid.bin")
    for run in (
        lambda: begins(folder, "word"),
        lambda: preprocess(["--add-checksums", "--destdir", str(folder)]),
    ):
        assert run() == 2
        assert "valid.bin: damaged (its checksum differs)" in capsys.readouterr().err
    assert not (folder / SUMS).exists()


def test_evaluation_checks_too(made, tmp_path, capsys):
    folder = shutil.copytree(made["word"], tmp_path / "word")
    flags = SMALL.replace("--no-save", f"--save-dir {tmp_path / 's'}")
    assert train([str(folder), *TRAINING["word"].split(), *flags.split()]) == 0
    flipped(folder / "test.bin", random.Random(4))
    assert evaluate(["--path", str(tmp_path / "s" / "checkpoint_last.pt"), "--cpu"]) == 2
    assert "test.bin: damaged" in capsys.readouterr().err
