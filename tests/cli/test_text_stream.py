"""The parts of a text, printed as its tokens arrive, add up to the whole text."""

from __future__ import annotations

import random

import pytest

from tsm.plugin.cli._text_stream import WINDOW, TextStream
from tsm.plugin.data.tokenizers import plain_tokenizer
from tsm.plugin.trained import open_trained


def parts_of(tokenizer, symbols):
    stream = TextStream(tokenizer)
    return [*(stream.add(symbol) for symbol in symbols), stream.close()]


@pytest.mark.parametrize(
    ("kind", "symbols"),
    [
        ("word", ["a", "bc", "<eos>", "<eos>", "d", "e", "<eos>"]),
        ("char", list("ab c\n\nd  e")),
        ("char_ptb", list("ab_c\n\nd_e\n")),
    ],
)
def test_plain_tokenizers(kind, symbols):
    tokenizer = plain_tokenizer(kind)
    parts = parts_of(tokenizer, symbols)
    assert "".join(parts) == tokenizer.text(symbols)
    assert parts[-1] == ""  # nothing was held back


def test_any_pieces(pieces):
    """The pieces include sequences that no text produces: incomplete characters, consecutive spaces, <unk>."""
    tokenizer = open_trained(pieces.path).tokenizer
    symbols = tokenizer.vocab_symbols()
    rng = random.Random(0)
    for _ in range(200):
        drawn = rng.choices(symbols, k=rng.randint(0, 30))
        assert "".join(parts_of(tokenizer, drawn)) == tokenizer.text(drawn)


def test_a_character_of_many_bytes_is_not_shown_by_halves(pieces):
    tokenizer = open_trained(pieces.path).tokenizer
    symbols = tokenizer.symbols("the 猫 sat")
    assert len([s for s in symbols if s.startswith("<0x")]) == 3
    parts = parts_of(tokenizer, symbols)
    assert "".join(parts) == "the 猫 sat"
    assert not any("\ufffd" in part for part in parts)


def test_lines_without_end(pieces):
    """The work per token does not grow with the length of the line."""
    tokenizer = open_trained(pieces.path).tokenizer
    symbols = tokenizer.symbols("the cat sat on 猫 the mat and then " * 100)
    stream, out = TextStream(tokenizer), ""
    for symbol in symbols:
        out += stream.add(symbol)
        assert len(stream.line) <= WINDOW + 4
    assert out + stream.close() == tokenizer.text(symbols)
