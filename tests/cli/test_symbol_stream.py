"""A text that arrives in parts gives the same symbols as the whole text."""

from __future__ import annotations

import random

import pytest

from tsm.plugin.cli._symbol_stream import symbol_stream
from tsm.plugin.data.tokenizers import TOKENIZERS, plain_tokenizer
from tsm.plugin.trained import open_trained

TEXTS = [
    "",
    "the cat sat\non the mat\n",
    "  two  gaps \t and a tab\n\n\n x",
    "no newline at the end",
    "It isn't<br /><br />GOOD, is it? (5/10)<br",
    "ends in a tag <br />",
    "Ünïcödé 猫 sat\u2003on\x85the mat \n",
    "_ a_b\n_",
]


def whole(tokenizer, text):
    """Symbols as in training data: whole lines with their newlines, then the unfinished line."""
    if tokenizer.end is None:
        return tokenizer.symbols(text)
    *lines, last = text.split("\n")
    return [s for line in lines for s in tokenizer.line_symbols(line)] + tokenizer.symbols(last)


def in_parts(tokenizer, text, rng):
    stream, found = symbol_stream(tokenizer), []
    while text:
        size = rng.randint(1, 5)
        found += stream.add(text[:size])
        text = text[size:]
    return found + stream.close()


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_any_split(kind):
    tokenizer, rng = plain_tokenizer(kind), random.Random(1)
    for text in TEXTS:
        for _ in range(20):
            assert in_parts(tokenizer, text, rng) == whole(tokenizer, text), repr(text)


def test_pieces(pieces):
    tokenizer, rng = open_trained(pieces.path).tokenizer, random.Random(1)
    for text in ["the cat sat\n\non the  mat", "the 猫 sat\n"]:
        assert in_parts(tokenizer, text, rng) == whole(tokenizer, text)


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("word", [("the ca", ["the"]), ("t sat ", ["cat", "sat"]), ("\n", ["<eos>"]), ("x", [])]),
        ("char", [("ab", ["a", "b"]), (" ", [" "]), ("\n", ["\n"])]),
        ("char_ptb", [("a ", ["a"]), ("b", ["_", "b"]), (" \n", ["\n"]), (" c", ["c"])]),
        (
            "review",
            [("good<br", []), (" />bad ", ["good", "bad"]), ("isn", []), ("'t ", ["is", "n't"])],
        ),
    ],
)
def test_as_soon_as_it_is_sure(kind, parts):
    stream = symbol_stream(plain_tokenizer(kind))
    for text, symbols in parts:
        assert stream.add(text) == symbols, text
