"""Writes every scored token with its log probability to a file.

    the<TAB>-2.718281        token (escaped as in dict.txt), log2 p(token | all before)

The first token of the text has nothing before it and is not in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ..common.atomic import atomic_file
from ..data import Vocab
from ..data.vocab import escape

Write = Callable[[np.ndarray, np.ndarray], None]


@contextmanager
def word_probs(path: Path, vocab: Vocab) -> Iterator[Write]:
    """write(tokens, bits) appends lines. The file appears under its name if the block succeeds."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: its folder does not exist")
    names = [escape(symbol) for symbol in vocab.symbols]
    with atomic_file(path) as file:

        def write(tokens: np.ndarray, bits: np.ndarray) -> None:
            lines = (
                f"{names[token]}\t{-b:.6f}\n"
                for token, b in zip(tokens.tolist(), bits.tolist(), strict=True)
            )
            file.write("".join(lines).encode())

        yield write
