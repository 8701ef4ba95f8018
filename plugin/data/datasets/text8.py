"""text8: 100,000,000 characters of Wikipedia, a-z and space; the first 90M train, the next 5M
valid, the last 5M test.

A prefix of 52,000,000 characters is split 48M / 2M / 2M (its bits per character cannot be compared with
published ones).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..files import Entry, require
from ..meta import SPLITS
from ..tokenizers import CharTokenizer
from .common import Pieces, TextSource

NAMES = ("text8", "text8.txt", "text8.first52M")
CUTS = {
    100_000_000: (90_000_000, 5_000_000, 5_000_000),
    52_000_000: (48_000_000, 2_000_000, 2_000_000),
}
ALPHABET = b"abcdefghijklmnopqrstuvwxyz "
BLOCK = 1 << 20


def text8(root: Path) -> TextSource:
    """Characters. The split depends on the length."""
    entry = require(root, NAMES, "text8")
    size = _scan(entry)
    differences = []
    if size not in CUTS:
        differences.append(
            f"text8 has {size:,} characters instead of 100,000,000 (or the prefix of 52,000,000)"
        )
        if size < 60:
            raise ValueError(f"{entry.name}: {differences[0]}")
    cut = CUTS.get(size, (size - 2 * (size // 20), size // 20, size // 20))
    start = 0
    splits = {}
    for split, length in zip(SPLITS, cut, strict=True):
        splits[split] = _range(entry, start, start + length)
        start += length
    whole = "text8"
    if size != 100_000_000:
        whole = f"a text of {size:,} characters, not the whole text8 of 100,000,000"
    rule = (
        f"first {cut[0]:,} characters train, next {cut[1]:,} valid, last {cut[2]:,} test, "
        f"of {whole}"
    )
    return TextSource(
        CharTokenizer(),
        splits,
        rule,
        "text8",
        dict.fromkeys(SPLITS, entry.name),
        {s: {"tokens": n} for s, n in zip(SPLITS, cut, strict=True)},
        27,
        differences,
        [f"split: {rule}"],
    )


def _blocks(entry: Entry) -> Iterator[bytes]:
    """The bytes, without a final newline."""
    held = b""
    with entry.open() as f:
        while block := f.read(BLOCK):
            yield held + block[:-1]
            held = block[-1:]
    if held and held != b"\n":
        yield held


def _scan(entry: Entry) -> int:
    """The number of characters; anything but a-z and space is an error."""
    size = 0
    for block in _blocks(entry):
        odd = block.translate(None, ALPHABET)
        if odd:
            at = size + block.index(odd[:1])
            raise ValueError(
                f"{entry.name}: character {at} is {odd[:1]!r}; accepted: a to z and space"
            )
        size += len(block)
    return size


def _range(entry: Entry, start: int, stop: int) -> Pieces:
    """Characters start..stop-1."""

    def pieces() -> Iterator[str]:
        at = 0
        for block in _blocks(entry):
            part = block[max(start - at, 0) : max(stop - at, 0)]
            if part:
                yield part.decode("ascii")
            at += len(block)
            if at >= stop:
                return

    return pieces
