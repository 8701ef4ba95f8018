"""--split 0.8,0.1,0.1: splits one file into train, valid and test.

The lines of a plain text are split in order. Rows of a table are split at random, stratified by label: each
split has about the same proportions of labels. train has at least one row of every label.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice

from ...common.lazy import np
from ...common.rng import permutation
from ..datasets.common import Pieces, TextSource
from ..meta import SPLITS
from .pipeline import Progress, open_bar

Shares = tuple[float, ...]


def parse_shares(text: str) -> Shares:
    """ "0.8,0.1,0.1" -> (0.8, 0.1, 0.1)"""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) not in (2, 3) or min(found) <= 0 or not math.isclose(sum(found), 1, abs_tol=1e-6):
        raise ValueError(
            f"--split is {text!r}; accepted: shares of train, valid and, optionally, test that sum to 1, "
            "e.g. 0.8,0.1,0.1"
        )
    return found


def deal(labels: np.ndarray, shares: Sequence[float], seed: int) -> np.ndarray:
    """uint8 [N]: the split of each row (0 train, 1 valid, 2 test); labels int [N]."""
    order = permutation(len(labels), seed, "split")
    order = order[np.argsort(labels[order], kind="stable")]  # grouped by label, each group shuffled
    sizes = np.bincount(labels)
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = np.repeat(sizes, sizes)
    rank = np.arange(len(labels)) - start  # within its label
    split = np.zeros(len(labels), dtype=np.uint8)
    for end in np.cumsum(shares)[:-1]:
        split += rank >= np.maximum(1, np.rint(end * size))
    out = np.empty_like(split)
    out[order] = split
    return out


def cut_text(source: TextSource, shares: Shares | None, progress: Progress | None) -> TextSource:
    """Splits the lines of one plain text in order; without shares, returns the source unchanged."""
    if shares is None:
        return source
    pieces = source.splits["train"]
    if source.tokenizer.unit == "block":
        pieces = partial(_lines, pieces)
    lines = 0
    bar = open_bar(progress, "reading train")
    try:
        for piece in pieces():
            lines += 1
            bar.update(len(piece))
    finally:
        bar.close()
    ends = [round(lines * end) for end in accumulate(shares)]
    if min(b - a for a, b in zip([0, *ends], ends, strict=False)) < 1:
        raise ValueError(
            f"--split: {lines:,} lines cannot be split into shares {', '.join(f'{s:g}' for s in shares)}; "
            "accepted: at least one line for each"
        )
    splits: dict[str, Pieces] = {
        split: partial(_between, pieces, start, end)
        for split, start, end in zip(SPLITS, [0, *ends], ends, strict=False)
    }
    rule = f"shares {', '.join(f'{s:g}' for s in shares)} of one file's lines, in order"
    return replace(source, splits=splits, rule=rule)


def _between(pieces: Pieces, start: int, end: int) -> Iterator[str]:
    return islice(iter(pieces()), start, end)


def _lines(pieces: Pieces) -> Iterator[str]:
    """Regroups blocks of text into whole lines with their newlines."""
    held = ""
    for block in pieces():
        *whole, held = (held + block).split("\n")
        yield from (line + "\n" for line in whole)
    if held:
        yield held
