"""Tokenizers: how they split text, that decode restores it, and that the fast path equals the plain one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsm.plugin.data.tokenizers import (
    TOKENIZERS,
    CharTokenizer,
    PtbCharTokenizer,
    ReviewTokenizer,
    Tokenizer,
    WordTokenizer,
    plain_tokenizer,
)
from tsm.plugin.data.vocab import Vocab

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
lines = texts.map(lambda t: t.replace("\n", " "))


def vocab_of(tokenizer: Tokenizer, pieces: list[str]) -> Vocab:
    counts = Counter(s for p in pieces for s in tokenizer.line_symbols(p)) or Counter("x")
    return Vocab.build(counts)


def test_word():
    t = WordTokenizer()
    assert t.line_symbols(" no it was n't \t ok ") == ["no", "it", "was", "n't", "ok", "<eos>"]
    assert t.line_symbols("") == ["<eos>"]
    assert t.text(["a", "b", "<eos>", "<eos>", "c", "<eos>"]) == "a b\n\nc\n"


def test_ptb_characters():
    t = PtbCharTokenizer()
    assert t.line_symbols(" a <unk> b ") == [*list("a_<unk>_b"), "\n"]
    assert t.text(list("a_b\nc\n")) == "a b\nc\n"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I DIDN'T like it.<br />", ["i", "did", "n't", "like", "it", "."]),
        ("It's 10/10!", ["it", "'s", "10", "/", "10", "!"]),
        ("they'll 've_x", ["they", "'ll", "ve", "x"]),
        ("1950's Café—ok", ["1950", "'s", "café", "ok"]),
        ("'tis 'quoted'", ["tis", "quoted"]),
        ("~ @ #", []),
    ],
)
def test_review_tokens(text, tokens):
    assert ReviewTokenizer().symbols(text) == tokens


@given(lines)
def test_word_and_ptb_round_trip_to_single_spaces(line):
    for tokenizer in (WordTokenizer(), PtbCharTokenizer()):
        plain = line.replace("_", "-") if tokenizer.kind == "char_ptb" else line
        vocab = vocab_of(tokenizer, [plain])
        assert (
            tokenizer.decode(tokenizer.encode_line(plain, vocab), vocab)
            == " ".join(plain.split()) + "\n"
        )


@given(texts)
def test_char_round_trip_is_exact(text):
    tokenizer = CharTokenizer()
    vocab = vocab_of(tokenizer, [text])
    assert tokenizer.decode(tokenizer.encode(text, vocab), vocab) == text


@given(texts)
def test_review_tokens_survive_their_own_text(text):
    tokenizer = ReviewTokenizer()
    tokens = tokenizer.symbols(text)
    assert tokenizer.symbols(tokenizer.text(tokens)) == tokens


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(pieces=st.lists(lines, min_size=1, max_size=5), known=st.integers(1, 8))
def test_many_pieces_equal_one_by_one(kind, pieces, known):
    """count() and encode_pieces() agree with symbols() and the dictionary."""
    tokenizer = plain_tokenizer(kind)
    expected = Counter(s for p in pieces for s in tokenizer.line_symbols(p))
    assert tokenizer.count(pieces) == expected
    vocab = Vocab(
        [s for s, _ in expected.most_common(known)] or ["x"],
        [1] * min(known, max(len(expected), 1)),
    )
    ids, lengths = tokenizer.encode_pieces(pieces, vocab, missing=99)
    rows = [vocab.lookup(tokenizer.line_symbols(p), 99) for p in pieces]
    assert ids.tolist() == [i for r in rows for i in r]
    assert lengths.tolist() == [len(r) for r in rows]
    assert ids.dtype == np.int32


def test_words_counts_one_end_a_line():
    assert WordTokenizer().words(["a b", ""]) == 4
    assert CharTokenizer().words(["a b"]) is None


def test_unknown_kind_lists_the_kinds():
    with pytest.raises(ValueError, match=r"'bytes'.*word, char, char_ptb, review, sentencepiece"):
        plain_tokenizer("bytes")
