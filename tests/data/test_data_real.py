"""The real data sets through the real command give exactly the published counts."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.data import ClassificationBatches, DataDir

pytestmark = pytest.mark.data


def prepare(run, real_data: Path, out: Path, name: str, *extra) -> DataDir:
    code, _, err = run("--dataset", name, "--from", real_data, "--destdir", out / name, *extra)
    assert code == 0, err
    assert list(out.iterdir()) == [out / name]
    data = DataDir(out / name)
    assert data.meta.differences == []
    return data


def unpacked(path: Path) -> bytes:
    return lzma.decompress(path.read_bytes())


def tokens(data: DataDir) -> list[int]:
    out = []
    for split in ("train", "valid", "test"):
        corpus = data.corpus(split)
        corpus.verify()
        assert len(corpus) == data.meta.splits[split]["tokens"]
        out.append(len(corpus))
    return out


def text_of(data: DataDir, split: str) -> str:
    corpus = data.corpus(split)
    return data.tokenizer.decode(corpus.read(0, len(corpus)), data.vocab)


def test_ptb(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "ptb")
    assert tokens(data) == [929_589, 73_760, 82_430]
    assert len(data.vocab) == 10_000
    assert data.vocab.symbols[:3] == ("the", "<unk>", "<eos>")
    assert data.vocab.counts.sum() == 929_589
    assert data.vocab.counts[data.vocab.eos] == 42_068
    original = unpacked(real_data / "ptb.valid.txt.xz").decode()
    assert text_of(data, "valid") == "".join(x.strip() + "\n" for x in original.split("\n")[:-1])


def test_ptb_characters(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "ptb-char")
    assert tokens(data) == [5_017_482, 393_042, 442_423]
    assert len(data.vocab) == 50
    assert data.meta.splits["test"]["types"] == 48
    original = unpacked(real_data / "ptb.test.txt.xz").decode()
    assert text_of(data, "test") == "".join(x.strip() + "\n" for x in original.split("\n")[:-1])


def test_wikitext2(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "wikitext-2")
    assert tokens(data) == [2_088_628, 217_646, 245_569]
    assert len(data.vocab) == 33_278
    assert data.meta.splits["train"]["lines"] == 36_718


def test_mnist(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "mnist")
    parts = {s: data.images(s) for s in ("train", "valid", "test")}
    assert [p[0].shape for p in parts.values()] == [
        (50_000, 28, 28),
        (10_000, 28, 28),
        (10_000, 28, 28),
    ]
    total = np.bincount(parts["train"][1], minlength=10) + np.bincount(
        parts["valid"][1], minlength=10
    )
    assert total.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_a_cut_ptb_is_found(run, fails, real_data, tmp_path):
    for split in ("train", "valid", "test"):
        raw = unpacked(real_data / f"ptb.{split}.txt.xz")
        (tmp_path / f"ptb.{split}.txt").write_bytes(raw[: 200_000 if split == "valid" else None])
    result = run("--dataset", "ptb", "--from", tmp_path, "--destdir", tmp_path / "out")
    fails(result, "valid has", "instead of 73,760")
    assert "train has" not in result[2]
    assert not (tmp_path / "out").exists()


@pytest.mark.nightly
def test_text8(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "text8")
    assert tokens(data) == [48_000_000, 2_000_000, 2_000_000]
    assert len(data.vocab) == 27
    assert "first 48,000,000 characters train" in data.meta.split_rule
    original = unpacked(real_data / "text8.first52M.xz")[50_000_000:50_000_100].decode()
    test = data.corpus("test")
    assert data.tokenizer.decode(test.read(0, 100), data.vocab) == original


@pytest.mark.nightly
def test_imdb(run, real_data, tmp_path):
    data = prepare(run, real_data, tmp_path, "imdb", "--workers", 2)
    total = tokens(data)
    assert total[0] + total[1] == 6_839_541
    splits = {s: data.corpus(s) for s in ("train", "valid", "test")}
    assert [c.items for c in splits.values()] == [22_500, 2_500, 25_000]
    assert splits["test"].labels.sum() == 12_500
    assert splits["train"].labels.sum() + splits["valid"].labels.sum() == 12_500
    table = unpacked(real_data / "glove.6B.100d.imdb25k.vocab.tsv.xz").decode().split("\n")[:-1]
    known = [line.split("\t") for line in table]
    assert list(data.vocab.symbols[:-1]) == [w for w, _, _ in known]
    assert data.vocab.counts[:-1].tolist() == [int(c) for _, c, _ in known]
    assert data.vocab.symbols[-1] == "<unk>"
    matrix = data.embeddings()
    assert matrix.shape == (25_002, 100)
    np.testing.assert_allclose(matrix[0, :3], [-0.038194, -0.24487, 0.72812], rtol=1e-3)
    assert data.meta.embeddings["found"] == 24_392
    batch = ClassificationBatches(
        splits["train"], 64, data.meta.pad_id, fixed_length=400
    ).next_batch()
    assert batch.x.shape == (64, 400)
    assert 10 < batch.y.sum() < 54  # shuffled: the file has all positive reviews first
    assert json.loads((tmp_path / "imdb" / "meta.json").read_text())["seed"] == 0


@pytest.mark.nightly
def test_wikitext2_pieces(run, real_data, tmp_path):
    pytest.importorskip("sentencepiece")
    args = ("--bpe", "sentencepiece", "--vocab-size", 8000, "--workers", 2)
    data = prepare(run, real_data, tmp_path, "wikitext-2", *args)
    assert len(data.vocab) == 8000
    assert [data.meta.splits[s]["words"] for s in ("train", "valid", "test")] == [
        2_088_628,
        217_646,
        245_569,
    ]
    assert text_of(data, "valid") == unpacked(real_data / "wiki.valid.tokens.xz").decode()
    assert data.meta.splits["train"]["unk"] == 0
