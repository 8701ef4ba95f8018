"""An n-gram model with interpolated Witten-Bell smoothing, as a baseline for language models.

    p_k(w | h) = (c(h w) + T(h) p_{k-1}(w | h')) / (c(h) + T(h))

h is a context of k - 1 tokens, h' is h without its first token, c is a count in the training text, and T(h) is
the number of different tokens that follow h there. p_0 = 1/V. For a context that does not occur, p_k = p_{k-1}.
"""

from __future__ import annotations

import numpy as np


def n_gram_bits(train: np.ndarray, test: np.ndarray, vocab_size: int, order: int) -> float:
    """Bits per token of `test` under the n-gram model of `train` with n = `order`.

    The first tokens of `test` have shorter contexts.
    """
    if order < 1 or float(vocab_size) ** order >= 2**63:
        most = int(63 / np.log2(vocab_size)) if vocab_size > 1 else 63
        raise ValueError(f"order is {order}; accepted for {vocab_size} symbols: 1 to {most}")
    train, test = train.astype(np.int64), test.astype(np.int64)
    p = np.full(len(test), 1 / vocab_size)
    for k in range(1, min(order, len(train), len(test)) + 1):
        seen, counts = np.unique(_codes(train, vocab_size, k), return_counts=True)
        contexts, first = np.unique(seen // vocab_size, return_index=True)
        following = np.diff(first, append=len(seen))
        total = np.add.reduceat(counts, first)
        codes = _codes(test, vocab_size, k)
        context, known = _find(contexts, codes // vocab_size)
        pair, counted = _find(seen, codes)
        types = following[context]
        mixed = (counted * counts[pair] + types * p[k - 1 :]) / (total[context] + types)
        p[k - 1 :] = np.where(known, mixed, p[k - 1 :])
    return float(-np.log2(p).mean())


def _codes(tokens: np.ndarray, vocab_size: int, k: int) -> np.ndarray:
    """The k-grams as numbers in base V; the last token is the last digit."""
    count = len(tokens) - k + 1
    codes = np.zeros(count, dtype=np.int64)
    for i in range(k):
        codes = codes * vocab_size + tokens[i : i + count]
    return codes


def _find(table: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The position of each number in a sorted table, and whether it is in the table."""
    at = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return at, table[at] == wanted
