"""sentencepiece: it trains, round-trips any line exactly, is reproducible, and reports errors."""

from __future__ import annotations

import pickle
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tsm.plugin.data.subword import MissingPackage, SentencePieceTokenizer, train_sentencepiece
from tsm.plugin.data.vocab import EOS, UNK, Vocab

pytest.importorskip("sentencepiece")
WORDS = [
    a + b + c for a in ("st", "gr", "m", "fl") for b in ("o", "ai", "ee") for c in ("ne", "l", "pp")
]
TEXT = [f"the {a} of {b} , {b} and no {a} ." for a in WORDS for b in WORDS[::5]]


@pytest.fixture(scope="module")
def model() -> bytes:
    return train_sentencepiece(TEXT, 300)


@pytest.fixture(scope="module")
def tokenizer(model) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(model)


def vocab_of(tokenizer: SentencePieceTokenizer) -> Vocab:
    pieces = tokenizer.vocab_symbols()
    return Vocab(pieces, [0] * len(pieces))


def test_size_and_special_ids(tokenizer):
    vocab = vocab_of(tokenizer)
    assert len(vocab) == 300
    assert (vocab[0], vocab[1]) == (UNK, EOS)
    assert len(tokenizer.encode("the stone of grail", vocab)) < len("the stone of grail")


def test_training_twice_gives_the_same_bytes(model):
    assert train_sentencepiece(TEXT, 300) == model


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\u2581"), max_size=30)
)
@example("  two  spaces  ")
@example("<eos> <unk> <0x41>")
@example("\x00 \r \u3000 日本")
def test_any_line_round_trips(tokenizer, line):
    vocab = vocab_of(tokenizer)
    ids = tokenizer.encode_line(line, vocab)
    assert ids[-1] == 1
    assert 0 not in ids
    assert 1 not in ids[:-1]
    assert tokenizer.decode(ids, vocab) == line + "\n"
    fast, lengths = tokenizer.encode_pieces([line, "the mail"], vocab, missing=0)
    assert fast[: lengths[0]].tolist() == ids


def test_travels_to_worker_processes(tokenizer):
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again.symbols("the flail") == tokenizer.symbols("the flail")


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (10, "--vocab-size is 10"),
        (
            260,
            r"--vocab-size is 260; accepted with this text: \d+ \(its characters and 256 bytes\)",
        ),
        (9000, r"--vocab-size is 9000; accepted with this text: up to \d+$"),
    ],
)
def test_impossible_size(size, message):
    with pytest.raises(ValueError, match=message):
        train_sentencepiece(TEXT, size)


def test_damaged_model(model):
    for bad in (b"", b"abc", model[: len(model) // 2]):
        with pytest.raises(ValueError, match="sentencepiece model"):
            SentencePieceTokenizer(bad)


def test_missing_package_names_the_extra(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(MissingPackage, match=r"pip install 'timescale-models\[train\]'"):
        SentencePieceTokenizer(model)
