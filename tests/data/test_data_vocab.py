"""Vocab: order, thresholds, the <unk> rule, and dict.txt as an exact, checked round trip."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tsm.plugin.data.vocab import EOS, UNK, Vocab, escape, unescape

COUNTS = Counter({"the": 5, EOS: 1, "b": 2, "a": 2, "rare": 1})
symbols = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
tables = st.dictionaries(symbols, st.integers(0, 2**63 - 1), min_size=1, max_size=20)


def test_most_frequent_first_ties_by_code_point_and_nothing_added():
    vocab = Vocab.build(COUNTS)
    assert vocab.symbols == ("the", "a", "b", EOS, "rare")
    assert vocab.counts.tolist() == [5, 2, 2, 1, 1]
    assert vocab.unk is None
    assert vocab.eos == 3
    assert vocab.pad_id == 5


def test_threshold_drops_into_unk_and_keeps_eos():
    vocab = Vocab.build(COUNTS, threshold=2)
    assert vocab.symbols == ("the", "a", "b", EOS, UNK)
    assert vocab.counts[vocab.unk] == 1
    assert vocab.id("rare") == vocab.unk


def test_threshold_that_drops_nothing_adds_nothing():
    assert UNK not in Vocab.build(COUNTS, threshold=1)


@pytest.mark.parametrize("nwords", [2, 3, 4, 5, 6])
def test_nwords_bounds_the_whole_dictionary(nwords):
    vocab = Vocab.build(COUNTS, nwords=nwords)
    assert len(vocab) == min(nwords, 5)
    assert EOS in vocab
    assert (UNK in vocab) == (nwords < 5)
    assert vocab.counts.sum() == sum(COUNTS.values())


def test_the_datas_own_unk_collects_and_moves_up():
    vocab = Vocab.build(Counter({"x": 6, "y": 3, "z": 2, "q": 2, UNK: 1}), threshold=3)
    assert vocab.symbols == ("x", UNK, "y")
    assert vocab.counts.tolist() == [6, 5, 3]


def test_unknown_symbol_without_unk_is_named_with_close_ones():
    with pytest.raises(ValueError, match=r"'thee'.*no <unk>.*'the'"):
        Vocab.build(COUNTS).id("thee")
    with pytest.raises(ValueError, match="token id 5"):
        Vocab.build(COUNTS)[5]


def test_with_unk_appends_once():
    vocab = Vocab.build(COUNTS).with_unk()
    assert vocab.symbols[-1] == UNK
    assert vocab.with_unk() is vocab


@pytest.mark.parametrize(
    ("symbol", "text"),
    [
        (" ", r"\s"),
        ("\n", r"\n"),
        ("\\", r"\\"),
        ("\x85", r"\u{85}"),
        ("a b\t", r"a\sb\t"),
        ("é", "é"),
        ("\x00", r"\u{0}"),
    ],
)
def test_escapes(symbol, text):
    assert escape(symbol) == text
    assert unescape(text) == symbol


@given(tables)
@example({" ": 1, "\n": 2, "\\": 3, "\\s": 4, "\u2028": 5, "\x00": 6, "\ufeff": 7, "a 1": 8})
def test_dict_round_trip(table):
    vocab = Vocab(list(table), list(table.values()))
    data = vocab.dumps()
    assert data.count(b"\n") == len(vocab)
    again = Vocab.loads(data)
    assert again.symbols == vocab.symbols
    assert again.counts.tolist() == vocab.counts.tolist()
    assert again.fingerprint() == vocab.fingerprint()


@given(st.binary(max_size=60))
@example(b"\\u{110000} 1\n")
@example(b"\\u{d800} 1\n")
@example("a ٣\n".encode())
@example(b"a 99999999999999999999\n")
def test_any_bytes_parse_or_are_refused(data):
    try:
        vocab = Vocab.loads(data)
    except ValueError:
        return
    assert Vocab.loads(vocab.dumps()) == vocab


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty or cut short"),
        (b"a 1\nb 2", "cut short"),
        (b"a 1\nb\n", "line 2"),
        (b"a 1\n\n", "line 2"),
        (b"a -1\n", "line 1"),
        (b"a x\n", "line 1"),
        (b"a 1\na 2\n", "'a' occurs twice, as ids 0 and 1"),
        (b"a\\q 1\n", "escape"),
        (b"a\\ 1\n", "escape"),
        (b"\xff 1\n", "not UTF-8 at byte 0"),
    ],
)
def test_damaged_dict_names_the_fault(data, message):
    with pytest.raises(ValueError, match=message):
        Vocab.loads(data, "dict.txt")


def test_fingerprint_ignores_counts_but_not_order():
    assert Vocab(["a", "b"], [1, 2]).fingerprint() == Vocab(["a", "b"], [9, 9]).fingerprint()
    assert Vocab(["a", "b"], [1, 2]).fingerprint() != Vocab(["b", "a"], [1, 2]).fingerprint()


@pytest.mark.parametrize("bad", [{"threshold": -1}, {"nwords": -1}, {"nwords": 1}])
def test_bad_limits(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Vocab.build(COUNTS, **bad)


def test_save_and_load(tmp_path):
    vocab = Vocab.build(COUNTS)
    vocab.save(tmp_path / "dict.txt")
    assert Vocab.load(tmp_path / "dict.txt") == vocab
    assert [p.name for p in tmp_path.iterdir()] == ["dict.txt"]
