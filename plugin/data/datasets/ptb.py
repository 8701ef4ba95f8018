"""Penn Treebank (Mikolov's preprocessing), by words and by characters. All versions come from
ptb.{train,valid,test}.txt.

Words: one <eos> per line, 929,589 / 73,760 / 82,430 tokens, 10,000 types. Characters: 5,017,482 /
393,042 / 442,423 symbols, 50 types; the published numbers are higher by one per split, because the original
files end in a blank line.

Two other character versions serve papers that do not say which one they used: `ptb-char-raw`, the files
unchanged (a line begins and ends with a space), and `ptb-char-27`, the letters a to z and single spaces, as in
text8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ..files import Entry, read_lines, require
from ..meta import SPLITS
from ..tokenizers import CharTokenizer, PtbCharTokenizer, WordTokenizer
from .common import Pieces, TextSource, file_pieces

WORDS = {
    "train": {"lines": 42_068, "words": 929_589},
    "valid": {"lines": 3_370, "words": 73_760},
    "test": {"lines": 3_761, "words": 82_430},
}
CHARACTERS = {
    "train": {"tokens": 5_017_482},
    "valid": {"tokens": 393_042},
    "test": {"tokens": 442_423},
}
RAW = {
    "train": {"tokens": 5_101_618},
    "valid": {"tokens": 399_782},
    "test": {"tokens": 449_945},
}
LETTERS = {
    "train": {"tokens": 4_881_446},
    "valid": {"tokens": 382_219},
    "test": {"tokens": 428_818},
}
RULE = "the official three files"
NOT_LETTERS = re.compile("[^a-z]+")


def ptb(root: Path) -> TextSource:
    """Word level."""
    entries = _word_files(root)
    tokenizer = WordTokenizer()
    return TextSource(
        tokenizer,
        {s: file_pieces(e, tokenizer) for s, e in entries.items()},
        RULE,
        "ptb",
        {s: e.name for s, e in entries.items()},
        WORDS,
        10_000,
    )


def ptb_char(root: Path) -> TextSource:
    """Character level, from the word files, or from files with one space after each character."""
    names = ("ptb.{}.txt", "ptb.char.{}.txt", "{}.txt")
    entries = {s: require(root, [n.format(s) for n in names], f"PTB {s} split") for s in SPLITS}
    return TextSource(
        PtbCharTokenizer(),
        {s: _lines(e) for s, e in entries.items()},
        RULE,
        "ptb-char",
        {s: e.name for s, e in entries.items()},
        CHARACTERS,
        50,
    )


def ptb_char_raw(root: Path) -> TextSource:
    """Every character of the word files, unchanged."""
    entries = _word_files(root)
    tokenizer = CharTokenizer()
    pieces = {s: file_pieces(e, tokenizer) for s, e in entries.items()}
    return _other_characters("ptb-char-raw", pieces, entries, RAW, 50)


def ptb_char_27(root: Path) -> TextSource:
    """Runs of characters other than a to z become one space, and <unk> becomes the word unk."""
    entries = _word_files(root)
    pieces = {s: _letters(e) for s, e in entries.items()}
    return _other_characters("ptb-char-27", pieces, entries, LETTERS, 27)


def _other_characters(
    name: str,
    pieces: dict[str, Pieces],
    entries: dict[str, Entry],
    expected: dict[str, dict[str, int]],
    types: int,
) -> TextSource:
    files = {s: e.name for s, e in entries.items()}
    return TextSource(CharTokenizer(), pieces, RULE, name, files, expected, types)


def _word_files(root: Path) -> dict[str, Entry]:
    return {s: require(root, (f"ptb.{s}.txt", f"{s}.txt"), f"PTB {s} split") for s in SPLITS}


def _letters(entry: Entry) -> Pieces:
    def lines() -> Iterator[str]:
        for line in read_lines(entry):
            yield NOT_LETTERS.sub(" ", f"{line.lower()} ").lstrip()

    return lines


def _lines(entry: Entry) -> Pieces:
    def joined() -> Iterator[str]:
        for line in read_lines(entry):
            if line.strip():  # the original character files end in a blank line
                yield "".join(line.split())

    return lambda: joined() if _is_spaced_out(entry) else read_lines(entry)


def _is_spaced_out(entry: Entry) -> bool:
    """Whether the first lines are single characters separated by spaces."""
    words = [w for line in islice(read_lines(entry), 5) for w in line.split()]
    return bool(words) and all(len(w) == 1 for w in words)
