"""The form in which a text data set is passed to the pipeline, and the comparison with known counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from ...common.lazy import np
from ..files import UTF8, Encoding, Entry, read_blocks, read_lines
from ..meta import SplitStats
from ..tokenizers import Tokenizer

Pieces = Callable[[], Iterable[str]]  # a new iterator for each call, since train is read twice


@dataclass
class TextSource:
    """Text for language modeling, or for classification with a label per piece: one piece iterator per
    split."""

    tokenizer: Tokenizer
    splits: dict[str, Pieces]
    rule: str  # how the splits were made, in words
    dataset: str | None = None
    files: dict[str, str] = field(default_factory=dict)  # split -> name of the file read
    # split -> {"lines": n, "words": n, ...}
    expected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    expected_types: int | None = None
    differences: list[str] = field(default_factory=list)  # found before anything is counted
    notes: list[str] = field(default_factory=list)
    classes: list[str] | None = None  # names of the labels
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)  # split -> int32, one per piece


def file_pieces(entry: Entry, tokenizer: Tokenizer, encoding: Encoding = UTF8) -> Pieces:
    """The pieces of a whole file: lines or blocks, as the tokenizer requires."""
    read = read_blocks if tokenizer.unit == "block" else read_lines
    return lambda: read(entry, encoding)


def count_differences(
    expected: Mapping[str, Mapping[str, int]], stats: Mapping[str, SplitStats]
) -> list[str]:
    """One phrase for each known count that does not match."""
    out = []
    for split, counts in expected.items():
        for what, number in counts.items():
            found = getattr(stats[split], what)
            if found != number:
                out.append(f"{split} has {found:,} {what} instead of {number:,}")
    return out
