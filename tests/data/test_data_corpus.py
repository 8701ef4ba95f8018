"""The binary format: exact round trip, atomic writing; damaged files are never accepted and never cause a
crash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsm.plugin.data.corpus import HEADER_SIZE, Corpus, Header, TokenArray
from tsm.plugin.data.corpus_writer import CorpusWriter

items = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


@settings(deadline=None)
@given(items, st.sampled_from([100, 2**16, 2**16 + 1]), st.booleans())
def test_round_trip(rows, vocab_size, labelled):
    with tempfile.TemporaryDirectory() as folder:
        prefix = Path(folder) / "train"
        with CorpusWriter(prefix, vocab_size) as w:
            for i, row in enumerate(rows):
                w.write(np.array(row, dtype=np.int64))
                w.end_item(i - 3 if labelled else None)
        corpus = Corpus(prefix)
        corpus.verify()
        assert corpus.tokens.dtype == (np.uint16 if vocab_size <= 2**16 else np.int32)
        assert len(corpus) == sum(map(len, rows))
        assert [corpus.item(i).tolist() for i in range(corpus.items)] == rows
        assert corpus.lengths().tolist() == [len(r) for r in rows]
        assert corpus.labels.tolist() == ([i - 3 for i in range(len(rows))] if labelled else [])


def test_largest_ids_survive(make_corpus):
    assert make_corpus([[2**16 - 1]], vocab_size=2**16).read(0, 1).tolist() == [2**16 - 1]
    assert make_corpus([[2**31 - 3]], vocab_size=2**31 - 2, name="b").read(0, 1).tolist() == [
        2**31 - 3
    ]


def test_many_items_at_once_equal_one_by_one(tmp_path):
    rows, labels = [[1, 2], [], [3]], [0, 1, 0]
    with CorpusWriter(tmp_path / "a", 10) as w:
        w.write_items(np.array([1, 2, 3]), np.array([2, 0, 1]), np.array(labels))
    with CorpusWriter(tmp_path / "b", 10) as w:
        for row, label in zip(rows, labels, strict=True):
            w.write(np.array(row, dtype=int))
            w.end_item(label)
    for end in ("bin", "idx"):
        assert (tmp_path / f"a.{end}").read_bytes() == (tmp_path / f"b.{end}").read_bytes()


def _stop_halfway(prefix: Path, error: type[BaseException]) -> None:
    with CorpusWriter(prefix, 10) as w:
        w.write(np.array([1]))
        raise error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interrupted_writer_leaves_nothing(tmp_path, error):
    with pytest.raises(error):
        _stop_halfway(tmp_path / "train", error)
    assert list(tmp_path.iterdir()) == []


def test_a_failing_end_leaves_nothing(tmp_path):
    def uneven() -> None:
        with CorpusWriter(tmp_path / "train", 10) as w:
            w.end_item(1)
            w.end_item()

    with pytest.raises(ValueError, match="1 labels for 2 items"):
        uneven()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("bad", [-1, 10])
def test_ids_outside_the_vocabulary_are_not_written(tmp_path, bad):
    with (
        pytest.raises(ValueError, match=f"{bad}.*accepted: 0 to 9"),
        CorpusWriter(tmp_path / "t", 10) as w,
    ):
        w.write(np.array([3, bad]))


def test_ids_outside_the_vocabulary_are_not_read(make_corpus):
    corpus = make_corpus([[1, 2, 3]], vocab_size=4)
    corpus.bin_path.write_bytes(np.array([1, 4, 3], "<u2").tobytes())
    with pytest.raises(ValueError, match="token 1 is 4; accepted: 0 to 3"):
        Corpus(corpus.bin_path.with_suffix("")).read(0, 3)


def test_ranges_are_checked(make_corpus):
    corpus = make_corpus([[1, 2, 3]])
    for start, stop in ((-1, 2), (0, 4), (2, 1)):
        with pytest.raises(ValueError, match="asked for"):
            corpus.read(start, stop)
    for i in (-1, 1):
        with pytest.raises(ValueError, match=f"item {i} asked for"):
            corpus.item(i)


@pytest.mark.parametrize("end", ["bin", "idx"])
def test_missing_file(make_corpus, end):
    corpus = make_corpus([[1]])
    corpus.bin_path.with_suffix(f".{end}").unlink()
    with pytest.raises(FileNotFoundError, match=f"train.{end}"):
        Corpus(corpus.bin_path.with_suffix(""))


def _use_everything(prefix: Path) -> None:
    corpus = Corpus(prefix)
    corpus.verify()
    corpus.lengths()
    corpus.read(0, len(corpus))
    for i in range(corpus.items):
        corpus.item(i)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    prefix = tmp_path_factory.mktemp("corpus") / "train"
    with CorpusWriter(prefix, 50) as w:
        for i in range(7):
            w.write(np.arange(i * 3) % 50)
            w.end_item(i % 2)
    _use_everything(prefix)
    return prefix


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_truncation_and_every_changed_byte_is_found(sound, data):
    """open or verify raises ValueError for any damage: no crash, no wrong answer."""
    end = data.draw(st.sampled_from(["bin", "idx"]))
    with tempfile.TemporaryDirectory() as folder:
        for e in ("bin", "idx"):
            shutil.copy(f"{sound}.{e}", folder)
        path = Path(folder) / f"train.{end}"
        raw = bytearray(path.read_bytes())
        kind = data.draw(st.sampled_from(["cut", "grown", "changed"]))
        if kind == "cut":
            raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
        elif kind == "grown":
            raw += data.draw(st.binary(min_size=1, max_size=9))
        else:
            at = data.draw(st.integers(0, len(raw) - 1))
            raw[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="train"):
            _use_everything(Path(folder) / "train")


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 9),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=80),
)
def test_a_well_formed_header_that_lies_is_refused(code, tokens, n, labels, vocab_size, rest):
    """Sizes that would need terabytes are first compared with the files."""
    with tempfile.TemporaryDirectory() as folder:
        header = Header(code, tokens, n, labels, vocab_size, 0, 0)
        (Path(folder) / "train.idx").write_bytes(header.pack() + rest)
        (Path(folder) / "train.bin").write_bytes(b"")
        with pytest.raises(ValueError, match="train"):
            _use_everything(Path(folder) / "train")


def test_header_is_64_bytes():
    assert HEADER_SIZE == 64


def test_token_array_checks_its_tokens():
    assert TokenArray(np.array([0, 4]), 5).read(0, 2).tolist() == [0, 4]
    with pytest.raises(ValueError, match="accepted: 0 to 4"):
        TokenArray(np.array([5]), 5)
    with pytest.raises(ValueError, match="1-d integers"):
        TokenArray(np.zeros((2, 2)), 5)
