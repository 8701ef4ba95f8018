"""A text resampled from its own bigrams, and Penn Treebank in this form (Mahto et al. 2021, figure 1).

    w_{t+1} ~ P(. | w_t),  P the distribution of successors of w_t in the training text, whose end is joined to
    its start

Because the ends are joined, every token has a successor, and the stationary distribution of the chain is that
of the text. From a random start, the expected frequency of every bigram is its frequency in the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ...common.lazy import np
from ...common.rng import uniforms
from ..vocab import EOS
from .common import Pieces, TextSource
from .ptb import ptb

SEED = 1


def resample(tokens: np.ndarray, count: int, seed: int = 0, purpose: str = "markov") -> np.ndarray:
    """int64 [count]: a random walk over the bigrams of `tokens` from a random start."""
    if count < 1 or len(tokens) < 2:
        raise ValueError(f"{count} tokens from a text of {len(tokens)}; accepted: 1 or more from 2")
    order = np.argsort(tokens, kind="stable")  # positions, sorted by token
    first = np.searchsorted(tokens[order], np.arange(tokens.max() + 2))
    # Memory views, because indexing them gives plain numbers without copying a long text into a list.
    successors = np.roll(tokens, -1)[order].data
    starts, sizes = first[:-1].data, np.diff(first).data
    draw = uniforms(count, seed, purpose).data
    here = int(tokens[int(draw[0] * len(tokens))])
    walk = [here]
    for u in draw[1:]:
        here = successors[starts[here] + int(u * sizes[here])]
        walk.append(here)
    return np.array(walk, dtype=np.int64)


def ptb_markov(root: Path) -> TextSource:
    """Words. Every split is as long as the original one and follows the bigrams of the training split."""
    known = ptb(root)
    texts = {split: list(_words(pieces())) for split, pieces in known.splits.items()}
    symbols, train = np.unique(texts["train"], return_inverse=True)

    def pieces_of(split: str) -> Pieces:
        def lines() -> Iterator[str]:
            walk = resample(train.astype(np.int64), len(texts[split]), SEED, f"{split}-markov")
            return _lines([str(word) for word in symbols[walk]])

        return lines

    return TextSource(
        known.tokenizer,
        {split: pieces_of(split) for split in texts},
        f"random walks over the bigrams of the training file, seed {SEED}",
        "ptb-markov",
        known.files,
    )


def _words(pieces: Iterable[str]) -> Iterator[str]:
    for line in pieces:
        yield from line.split()
        yield EOS


def _lines(words: Sequence[str]) -> Iterator[str]:
    """The inverse of `_words`; the last line may be incomplete."""
    line: list[str] = []
    for word in words:
        if word == EOS:
            yield " ".join(line)
            line = []
        else:
            line.append(word)
    if line:
        yield " ".join(line)
