"""GloVe vectors for a dictionary: row i is the vector of symbol i, if GloVe has one.

The vectors are read from glove.6B.100d.txt (plain, compressed, or in glove.6B.zip), or from the matrix made for
IMDB's 25,000 words (glove.6B.100d.imdb25k.f16.npy with its .vocab.tsv). Words without a vector, including
<unk>, get normally distributed numbers with the standard deviation of the existing rows, drawn by seed. The
last row, for padding, is 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ...common.lazy import np
from ...common.rng import normals
from ..files import Entry, find, read_lines
from ..npy import read_npy
from ..vocab import Vocab

WIDTH = 100
MAX_WORDS = 10_000_000
TEXT = ("glove.6B.100d.txt",)
MATRIX = ("glove.6B.100d.imdb25k.f16.npy",)
WORDS = ("glove.6B.100d.imdb25k.vocab.tsv",)


def glove_matrix(root: Path, vocab: Vocab, seed: int) -> tuple[np.ndarray, int, str]:
    """float32 [len(vocab) + 1, 100], how many symbols have a vector, and the name of the source."""
    text, matrix, words = find(root, TEXT), find(root, MATRIX), find(root, WORDS)
    if text is not None:
        rows, name = _from_text(text, vocab), text.name
    elif matrix is not None and words is not None:
        rows, name = _from_matrix(matrix, words, vocab), matrix.name
    else:
        raise FileNotFoundError(
            f"GloVe not found under {root}; looked for {TEXT[0]} (also in glove.6B.zip), and "
            f"{MATRIX[0]} with {WORDS[0]}; "
            "give its folder with --glove, or use --no-glove to train without vectors"
        )
    out = np.zeros((len(vocab) + 1, WIDTH), dtype=np.float32)
    have = np.zeros(len(vocab) + 1, dtype=bool)
    for i, vector in rows:
        out[i] = vector
        have[i] = True
    found = int(have.sum())
    if not found:
        raise ValueError(f"{name}: no word of the dictionary has a vector there")
    have[-1] = True
    scale = float(out[:-1][have[:-1]].std())
    missing = np.flatnonzero(~have)
    out[missing] = normals(missing.size * WIDTH, seed, "glove-missing").reshape(-1, WIDTH) * scale
    return out, found, name


def _from_text(entry: Entry, vocab: Vocab) -> Iterator[tuple[int, np.ndarray]]:
    for number, line in enumerate(read_lines(entry), 1):
        word, *values = line.rsplit(" ", WIDTH)
        if word not in vocab:
            continue
        try:
            vector = np.array([float(v) for v in values], dtype=np.float32)
        except ValueError:
            vector = np.empty(0, dtype=np.float32)
        if vector.shape != (WIDTH,) or not np.isfinite(vector).all():
            raise ValueError(
                f"{entry.name}, line {number}: accepted: a word and {WIDTH} finite numbers"
            )
        yield vocab.id(word), vector


def _from_matrix(matrix: Entry, words: Entry, vocab: Vocab) -> Iterator[tuple[int, np.ndarray]]:
    rows = [line.split("\t") for line in islice(read_lines(words), MAX_WORDS)]
    if not all(len(r) == 3 and r[2] in ("0", "1") for r in rows):
        raise ValueError(f"{words.name}: accepted: `word TAB count TAB 0 or 1` on every line")
    array = read_npy(matrix)
    if array.shape != (len(rows), WIDTH) or array.dtype.kind != "f" or not np.isfinite(array).all():
        raise ValueError(
            f"{matrix.name}: shape {array.shape}, {array.dtype}; "
            f"accepted: finite floats [{len(rows)}, {WIDTH}]"
        )
    for (word, _, has), vector in zip(rows, array, strict=True):
        if has == "1" and word in vocab:
            yield vocab.id(word), vector.astype(np.float32)
