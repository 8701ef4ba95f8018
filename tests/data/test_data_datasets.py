"""Known data sets in miniature: every form in which they are distributed gives the same folder, and errors say
what differs."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.data import DataDir

LINES = {"train": " the <unk> sat \n a b \n", "valid": " a the \n", "test": " b sat \n"}
REVIEWS = [
    (split, label, i, f"{'Good' if label else 'Bad'} film number {i} isn't it?<br />Yes")
    for split in ("train", "test")
    for label in (1, 0)
    for i in range(50)
]


def bytes_of(folder: Path) -> dict[str, bytes]:
    """The contents of all files except those that name the source."""
    named = ("meta.json", "checksums.txt")
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in named}


def prepare(run, dataset: str, root: Path, out: Path, *extra) -> tuple[int, str, str]:
    return run("--dataset", dataset, "--from", root, "--destdir", out, *extra)


def tar_of(members: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return raw.getvalue()


def test_ptb_in_every_form_and_what_differs(run, fails, tmp_path):
    plain, named, archive = (tmp_path / n for n in ("plain", "named", "archive"))
    for folder in (plain, named, archive):
        folder.mkdir()
    for split, text in LINES.items():
        (plain / f"ptb.{split}.txt").write_text(text)
        (named / f"{split}.txt.gz").write_bytes(gzip.compress(text.encode()))
    members = {f"./simple-examples/data/ptb.{s}.txt": t.encode() for s, t in LINES.items()}
    (archive / "simple-examples.tgz").write_bytes(tar_of(members))
    result = prepare(run, "ptb", plain, tmp_path / "no")
    fails(
        result,
        "train has 7 words instead of 929,589",
        "test has 1 lines instead of 3,761",
        "the dictionary has 6 types instead of 10,000",
        "--allow-differences",
    )
    assert not (tmp_path / "no").exists()
    for folder in (plain, named, archive):
        code, out, _ = prepare(run, "ptb", folder, folder / "out", "--allow-differences")
        assert code == 0
        assert "differs: train has 7 words instead of 929,589" in out
    assert bytes_of(plain / "out") == bytes_of(named / "out") == bytes_of(archive / "out")
    meta = json.loads((plain / "out" / "meta.json").read_text())
    assert "the dictionary has 6 types instead of 10,000" in meta["differences"]
    assert str(tmp_path) not in json.dumps(meta)


def test_ptb_resampled_has_the_bigrams_of_training_alone(run, tmp_path):
    for split, text in LINES.items():
        (tmp_path / f"ptb.{split}.txt").write_text(30 * text)
    code, *_ = prepare(run, "ptb-markov", tmp_path, tmp_path / "out")
    assert code == 0
    folder = DataDir(tmp_path / "out")

    def words(split):
        return [folder.vocab[int(i)] for i in folder.corpus(split).tokens]

    allowed = set(pairwise(["the", "<unk>", "sat", "<eos>", "a", "b", "<eos>", "the"]))
    for split, text in LINES.items():
        count = 30 * len(text.replace("\n", "<eos> ").split())
        found = words(split)
        assert count <= len(found) <= count + 1  # the last line may have been truncated
        assert set(pairwise(found[:-1])) <= allowed
    assert words("train")[:30] != words("valid")[:30]  # a walk of its own


def test_ptb_characters_from_words_or_from_spaced_out_characters(run, tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "chars").mkdir()
    for split, text in LINES.items():
        (tmp_path / "words" / f"ptb.{split}.txt").write_text(text)
        symbols = [c for line in text.split("\n")[:-1] for c in [*"_".join(line.split()), "\n"]]
        (tmp_path / "chars" / f"ptb.char.{split}.txt").write_text(" ".join(symbols) + " ")
    for form in ("words", "chars"):
        root = tmp_path / form
        assert prepare(run, "ptb-char", root, root / "out", "--allow-differences")[0] == 0
    assert bytes_of(tmp_path / "words" / "out") == bytes_of(tmp_path / "chars" / "out")
    data = DataDir(tmp_path / "words" / "out")
    train = data.corpus("train")
    assert data.tokenizer.decode(train.read(0, len(train)), data.vocab) == "the <unk> sat\na b\n"
    assert "_" in data.vocab
    assert " " not in data.vocab


def test_wikitext_zip_and_raw(run, fails, tmp_path):
    with zipfile.ZipFile(tmp_path / "wikitext-2-v1.zip", "w") as z:
        for split, text in LINES.items():
            z.writestr(f"wikitext-2/wiki.{split}.tokens", " \n" + text)
    code, _, _ = prepare(run, "wikitext-2", tmp_path, tmp_path / "out", "--allow-differences")
    assert code == 0
    assert DataDir(tmp_path / "out").meta.splits["train"]["lines"] == 3
    fails(prepare(run, "wikitext-2", tmp_path, tmp_path / "o2"), "instead of 2,088,628")
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "wiki.train.raw").write_text("x")
    fails(prepare(run, "wikitext-2", raw, tmp_path / "o2"), "raw WikiText-2", "wiki.train.tokens")


def test_text8_cut_by_length(run, fails, tmp_path):
    text = ("abcdefghijklmnopqrstuvwxyz " * 40)[:1000]
    (tmp_path / "text8").write_text(text + "\n")
    fails(
        prepare(run, "text8", tmp_path, tmp_path / "out"), "1,000 characters instead of 100,000,000"
    )
    code, out, _ = prepare(run, "text8", tmp_path, tmp_path / "out", "--allow-differences")
    assert code == 0
    assert "first 900 characters train, next 50 valid, last 50 test" in out
    data = DataDir(tmp_path / "out")
    assert "last 50 test" in data.meta.split_rule
    parts = [data.corpus(s) for s in ("train", "valid", "test")]
    assert [len(p) for p in parts] == [900, 50, 50]
    joined = "".join(data.tokenizer.decode(p.read(0, len(p)), data.vocab) for p in parts)
    assert joined == text
    (tmp_path / "text8").write_text("abc DEF" * 20)
    fails(prepare(run, "text8", tmp_path, tmp_path / "o2"), "character 4 is b'D'")


@pytest.mark.parametrize(
    ("size", "cut"),
    [
        (100_000_000, (90_000_000, 5_000_000, 5_000_000)),
        (52_000_000, (48_000_000, 2_000_000, 2_000_000)),
    ],
)
def test_text8_known_lengths(monkeypatch, tmp_path, size, cut):
    from tsm.plugin.data.datasets import text8

    (tmp_path / "text8").write_text("a")
    monkeypatch.setattr(text8, "_scan", lambda entry: size)
    source = text8.text8(tmp_path)
    assert source.differences == []
    assert tuple(source.expected[s]["tokens"] for s in ("train", "valid", "test")) == cut
    assert f"{cut[0]:,} characters train" in source.rule
    assert ("not the whole" in source.rule) == (size != 100_000_000)


def write_glove(folder: Path) -> None:
    words = ("good", "bad", "film", "number", "n't")
    rows = [f"{w} " + " ".join(str(i + k / 100) for k in range(100)) for i, w in enumerate(words)]
    (folder / "glove.6B.100d.txt").write_text("\n".join(rows) + "\n")


def write_tsv(folder: Path, rows=REVIEWS) -> None:
    (folder / "imdb.tsv").write_text("".join(f"{s}\t{y}\t{i}\t9\t{t}\n" for s, y, i, t in rows))


def test_imdb_in_every_form(run, fails, tmp_path):
    table, tree, archive = (tmp_path / n for n in ("table", "tree", "archive"))
    members = {
        f"aclImdb/{s}/{'pos' if y else 'neg'}/{i}_{9 if y else 2}.txt": t.encode()
        for s, y, i, t in reversed(REVIEWS)
    }
    members["aclImdb/train/unsup/0_0.txt"] = b"not labelled"
    for folder in (table, tree, archive):
        folder.mkdir()
        write_glove(folder)
    write_tsv(table)
    (archive / "aclImdb_v1.tar.gz").write_bytes(tar_of(members))
    for name, data in members.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    fails(
        prepare(run, "imdb", table, tmp_path / "no"), "train/pos has 50 reviews instead of 12,500"
    )
    for folder in (table, tree, archive):
        code, _, err = prepare(run, "imdb", folder, folder / "out", "--allow-differences")
        assert code == 0, err
    assert bytes_of(table / "out") == bytes_of(tree / "out") == bytes_of(archive / "out")
    data = DataDir(table / "out")
    splits = {s: data.corpus(s) for s in ("train", "valid", "test")}
    assert {s: c.items for s, c in splits.items()} == {"train": 90, "valid": 10, "test": 100}
    assert splits["test"].labels.tolist() == [1] * 50 + [0] * 50
    first = data.tokenizer.decode(splits["test"].item(0), data.vocab)
    assert first == "good film number 0 is n't it ? yes"
    for corpus in splits.values():
        for i in range(corpus.items):
            word = data.vocab[int(corpus.item(i)[0])]
            assert word == ("good" if corpus.labels[i] else "bad")


def test_imdb_embeddings(run, tmp_path):
    write_tsv(tmp_path)
    write_glove(tmp_path)
    assert prepare(run, "imdb", tmp_path, tmp_path / "out", "--allow-differences")[0] == 0
    data = DataDir(tmp_path / "out")
    matrix = data.embeddings()
    assert matrix.shape == (len(data.vocab) + 1, 100)
    assert data.meta.pad_id == len(data.vocab)
    assert not matrix[data.meta.pad_id].any()
    np.testing.assert_allclose(matrix[data.vocab.id("film")], 2 + np.arange(100) / 100, rtol=1e-6)
    assert data.meta.embeddings["found"] == 5
    assert data.vocab.symbols[-1] == "<unk>"
    assert matrix[data.vocab.unk].std() > 0.1  # missing rows are random, not zero
    assert len(np.unique(matrix, axis=0)) == len(matrix)


def test_imdb_valid_depends_on_the_seed_alone(run, tmp_path):
    write_tsv(tmp_path)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        args = ("--allow-differences", "--no-glove", "--seed", seed)
        assert prepare(run, "imdb", tmp_path, tmp_path / name, *args)[0] == 0
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b")
    assert bytes_of(tmp_path / "a")["valid.bin"] != bytes_of(tmp_path / "c")["valid.bin"]
    assert DataDir(tmp_path / "a").embeddings() is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("train\t2\t1\t9\tfine", "label is '2'; accepted: 0 (negative), 1 (positive)"),
        ("dev\t1\t1\t9\tfine", "split is 'dev'"),
        ("train\t1\tx\t9\tfine", "id is 'x'"),
        ("train\t1\t1", "3 fields"),
        ("train\t1\t77\t9\t<br />~", "train/pos/77 has no word"),
    ],
)
def test_imdb_bad_rows(run, fails, tmp_path, row, message):
    write_tsv(tmp_path)
    with open(tmp_path / "imdb.tsv", "a") as f:
        f.write(row + "\n")
    args = ("--allow-differences", "--no-glove")
    fails(prepare(run, "imdb", tmp_path, tmp_path / "out", *args), message)
    assert not (tmp_path / "out").exists()


def test_imdb_without_glove_says_where_it_looked(run, fails, tmp_path):
    write_tsv(tmp_path)
    result = prepare(run, "imdb", tmp_path, tmp_path / "out", "--allow-differences")
    fails(result, "GloVe not found", "glove.6B.100d.txt", "--no-glove")


def test_glove_with_a_bad_row(run, fails, tmp_path):
    write_tsv(tmp_path)
    write_glove(tmp_path)
    sound = (tmp_path / "glove.6B.100d.txt").read_text()
    for row in ("yes 1 2 3", "yes " + " ".join(["nan"] * 100), "yes " + " ".join(["x"] * 100)):
        (tmp_path / "glove.6B.100d.txt").write_text(sound + row + "\n")
        result = prepare(run, "imdb", tmp_path, tmp_path / "out", "--allow-differences")
        fails(result, "line 6", "100 finite numbers")


def idx(array: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, array.ndim))
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def write_mnist(folder: Path, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    images = (np.arange(n * 28 * 28) % 251).astype(np.uint8).reshape(n, 28, 28)
    labels = (np.arange(n) % 10).astype(np.uint8)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
    (folder / "train-labels.idx1-ubyte").write_bytes(idx(labels))
    (folder / "mnist.t10k-images-idx3-ubyte").write_bytes(idx(images[:3]))
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(labels[:3]))
    return images, labels


def test_mnist(run, fails, tmp_path):
    images, labels = write_mnist(tmp_path)
    fails(
        prepare(run, "mnist", tmp_path, tmp_path / "out"), "train has 12 images instead of 60,000"
    )
    assert prepare(run, "mnist", tmp_path, tmp_path / "out", "--allow-differences")[0] == 0
    data = DataDir(tmp_path / "out")
    parts = {s: data.images(s) for s in ("train", "valid", "test")}
    assert {s: len(p[1]) for s, p in parts.items()} == {"train": 10, "valid": 2, "test": 3}
    np.testing.assert_array_equal(parts["test"][0], images[:3])
    both = [np.concatenate([parts["train"][i], parts["valid"][i]]) for i in (0, 1)]
    found = sorted((int(y), x.tobytes()) for x, y in zip(*both, strict=True))
    assert found == sorted((int(y), x.tobytes()) for x, y in zip(images, labels, strict=True))


def write_cifar10(folder: Path, n: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Writes the official archive with n images per file; returns images [6n, 32, 32, 3] and labels, the test
    set last."""
    images = (np.arange(6 * n * 32 * 32 * 3) % 251).astype(np.uint8).reshape(-1, 32, 32, 3)
    labels = (np.arange(6 * n) % 10).astype(np.uint8)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for number, name in enumerate(names):
            rows = range(n * number, n * number + n)
            raw = b"".join(
                bytes([labels[i]]) + images[i].transpose(2, 0, 1).tobytes() for i in rows
            )
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(raw)
            tar.addfile(member, io.BytesIO(raw))
    return images, labels


def test_cifar10(run, fails, tmp_path):
    images, labels = write_cifar10(tmp_path)
    fails(
        prepare(run, "cifar-10", tmp_path, tmp_path / "out"),
        "train has 20 images instead of 50,000",
    )
    assert prepare(run, "cifar-10", tmp_path, tmp_path / "out", "--allow-differences")[0] == 0
    data = DataDir(tmp_path / "out")
    parts = {s: data.images(s) for s in ("train", "valid", "test")}
    assert {s: len(p[1]) for s, p in parts.items()} == {"train": 18, "valid": 2, "test": 4}
    np.testing.assert_array_equal(parts["test"][0], images[20:])
    np.testing.assert_array_equal(parts["test"][1], labels[20:])
    both = [np.concatenate([parts["train"][i], parts["valid"][i]]) for i in (0, 1)]
    found = sorted((int(y), x.tobytes()) for x, y in zip(*both, strict=True))
    assert found == sorted(
        (int(y), x.tobytes()) for x, y in zip(images[:20], labels[:20], strict=True)
    )


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda raw: raw[:-1], "whole records of 3,073 bytes"),
        (lambda raw: raw + b"x", "whole records of 3,073 bytes"),
        (lambda raw: b"\x0a" + raw[1:], "label 10; accepted: 0 to 9"),
        (lambda raw: raw * 2501, "more than 30,730,000 bytes"),
    ],
)
def test_cifar10_damage(run, fails, tmp_path, damage, said):
    write_cifar10(tmp_path)
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz") as tar:
        raw = tar.extractfile("cifar-10-batches-bin/test_batch.bin").read()
    (tmp_path / "test_batch.bin").write_bytes(damage(raw))  # plain files come first
    result = prepare(run, "cifar-10", tmp_path, tmp_path / "out", "--allow-differences")
    fails(result, f"test_batch.bin: {said}" if "whole" not in said else said)
    assert not (tmp_path / "out").exists()


def test_cifar10_without_a_file(run, fails, tmp_path):
    (tmp_path / "data_batch_1.bin").write_bytes(b"")
    fails(prepare(run, "cifar-10", tmp_path, tmp_path / "out"), "data_batch_2.bin")


@pytest.mark.parametrize("damage", ["cut", "long", "magic", "label", "mismatch"])
def test_mnist_damage(run, fails, tmp_path, damage):
    _, labels = write_mnist(tmp_path)
    raw = idx(labels)
    bad = {
        "cut": raw[:-1],
        "long": raw + b"x",
        "magic": b"\0\0\x09\x01" + raw[4:],
        "label": idx(np.full(12, 10, np.uint8)),
        "mismatch": idx(labels[:5]),
    }[damage]
    (tmp_path / "train-labels.idx1-ubyte").write_bytes(bad)
    result = prepare(run, "mnist", tmp_path, tmp_path / "out", "--allow-differences")
    fails(result, "train-")
    assert not (tmp_path / "out").exists()
