"""Pieces of text -> counts -> dictionary -> binarized split, in constant memory, with any number
of workers.

    count_symbols(pieces)   one pass over the training split, for the dictionary
    binarize(pieces)        one pass over each split, for PREFIX.bin and PREFIX.idx

Pieces are processed in chunks of about CHUNK characters, so memory does not grow with the text. The output does
not depend on the chunks or on the number of workers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...command.bar import NoBar
from ...common.lazy import np
from ..corpus import paths
from ..corpus_writer import CorpusWriter
from ..meta import SplitStats
from ..tokenizers import Tokenizer
from ..vocab import Vocab
from .parallel import ordered_map

CHUNK = 1 << 19  # characters
CHUNK_PIECES = 4096
Progress = Callable[[str], Any]  # title -> a progress bar with update(n) and close()


def chunks(pieces: Iterable[str]) -> Iterator[list[str]]:
    """Groups pieces into chunks of CHUNK characters."""
    group: list[str] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece) + 1
        if size >= CHUNK or len(group) >= CHUNK_PIECES:
            yield group
            group, size = [], 0
    if group:
        yield group


def count_symbols(
    pieces: Iterable[str], tokenizer: Tokenizer, workers: int = 1, progress: Progress | None = None
) -> Counter[str]:
    """How often each symbol occurs in all pieces."""
    total: Counter[str] = Counter()
    bar = open_bar(progress, "counting")
    try:
        for counts, characters in ordered_map(_count, chunks(pieces), workers, (tokenizer,)):
            total.update(counts)
            bar.update(characters)
    finally:
        bar.close()
    return total


def binarize(
    pieces: Iterable[str],
    tokenizer: Tokenizer,
    vocab: Vocab,
    prefix: Path,
    *,
    workers: int = 1,
    labels: Sequence[int] | np.ndarray | None = None,
    progress: Progress | None = None,
) -> tuple[SplitStats, np.ndarray]:
    """Writes PREFIX.bin and PREFIX.idx; returns the statistics of the split and how often each id occurs.

    A symbol that is not in the dictionary gets the id of <unk>, or len(vocab) if there is no <unk> yet. If
    stats.unk > 0, the caller then appends <unk>, which gets that id.
    """
    missing = vocab.unk if vocab.unk is not None else len(vocab)
    capacity = max(len(vocab), missing + 1)
    counts = np.zeros(capacity, dtype=np.int64)
    stats = SplitStats()
    bar = open_bar(progress, prefix.name)
    shared = (tokenizer, vocab, missing)
    one_item = tokenizer.unit == "block" and labels is None
    try:
        with CorpusWriter(prefix, capacity) as writer:
            for part in ordered_map(_encode, chunks(pieces), workers, shared):
                counts += np.bincount(part.ids, minlength=capacity)
                _add(stats, part)
                if one_item:
                    writer.write(part.ids)
                else:
                    start, stop = writer.items, writer.items + len(part.lengths)
                    own = None if labels is None else np.asarray(labels[start:stop])
                    writer.write_items(part.ids, part.lengths, own)
                bar.update(part.characters)
            if writer.tokens == 0:
                raise ValueError(f"split {prefix.name} is empty; accepted: at least one token")
            if one_item:
                writer.end_item()
                stats.lines += not part.complete
            elif labels is not None:
                stats.lines = writer.items
            if counts[len(vocab) :].sum() == 0:
                writer.vocab_size = len(vocab)
            stats.tokens = writer.tokens
    finally:
        bar.close()
    stats.types = int((counts > 0).sum())
    stats.bytes = sum(p.stat().st_size for p in paths(prefix))
    return stats, counts


class _Part(NamedTuple):
    """An encoded chunk."""

    ids: np.ndarray
    lengths: np.ndarray
    unknown: int
    words: int | None
    characters: int
    lines: int
    complete: bool  # whether the last line is complete


def _encode(pieces: list[str], tokenizer: Tokenizer, vocab: Vocab, missing: int) -> _Part:
    ids, lengths = tokenizer.encode_pieces(pieces, vocab, missing)
    unknown = int((ids == missing).sum())
    size = sum(map(len, pieces))
    if tokenizer.unit == "block":
        lines = sum(p.count("\n") for p in pieces)
        return _Part(ids, lengths, unknown, None, size, lines, pieces[-1].endswith("\n"))
    n = len(pieces)
    return _Part(ids, lengths, unknown, tokenizer.words(pieces), size + n, n, True)


def _add(stats: SplitStats, part: _Part) -> None:
    stats.unk += part.unknown
    stats.words = None if part.words is None else (stats.words or 0) + part.words
    stats.characters += part.characters
    stats.lines += part.lines


def _count(pieces: list[str], tokenizer: Tokenizer) -> tuple[Counter[str], int]:
    return tokenizer.count(pieces), sum(map(len, pieces))


def open_bar(progress: Progress | None, title: str) -> Any:
    """A progress bar with that title, or one that does nothing."""
    return NoBar() if progress is None else progress(title)
