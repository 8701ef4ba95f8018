"""Perplexity of frequent and of rare words, with bootstrap intervals (Mahto et al. 2021, table 1).

    bin of a word   by its count in the training data: >= 10K, [1K, 10K), [100, 1K), < 100
    perplexity      2 ** (mean bits of the words in the bin)
    interval        the scored text is cut into sequences of 100 words; as many are drawn with
                    replacement, 10,000 times; percentiles 2.5 and 97.5 of the perplexities

(The paper's own intervals are wider: the 4th and the 9,995th of 10,000.) The last sequence of a
stream may be shorter, so that every word counts. A sample without words of a bin is left out of the percentiles
of that bin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..common.lazy import np
from ..common.rng import words

EDGES = (10_000, 1_000, 100)
LABELS = (">=10K", "[1K,10K)", "[100,1K)", "<100")
SEQUENCE = 100  # words
SAMPLES = 10_000
BLOCK = 1 << 22  # sequences drawn at once; results for a seed depend on it

Track = Callable[[range], Iterable[int]]  # wraps the range of a loop, for example to show progress


@dataclass(frozen=True)
class Row:
    """A bin: the number of scored words, their perplexity (None: no words) and its interval."""

    label: str
    words: int
    perplexity: float | None
    low: float | None
    high: float | None


class FrequencyBins:
    """Sums of bits and of words by (sequence, bin); memory does not grow with the number of words."""

    def __init__(
        self, training_counts: np.ndarray, streams: int, steps: int, sequence: int = SEQUENCE
    ) -> None:
        """For streams of `steps` scored words each, to be passed to add() in order."""
        self.bin_of = (np.asarray(training_counts)[:, None] < np.array(EDGES)).sum(1)
        self.sequence = sequence
        shape = (streams, -(-steps // sequence), len(LABELS))
        self.bits = np.zeros(shape)
        self.counts = np.zeros(shape)

    def add(self, start: int, target: np.ndarray, bits: np.ndarray) -> None:
        """target, bits [B,T]: words start, start + 1, ... of every stream, and -log2 p of each."""
        rows = np.arange(target.shape[0])[:, None]
        place = (np.arange(start, start + target.shape[1]) // self.sequence)[None]
        where = (rows, place, self.bin_of[target])
        np.add.at(self.bits, where, bits)
        np.add.at(self.counts, where, 1.0)

    def sequences(self) -> np.ndarray:
        """[sequences, 2]: bits and words of each, in the order of the text."""
        return np.stack([self.bits.sum(2).ravel(), self.counts.sum(2).ravel()], axis=1)

    def table(
        self, samples: int = SAMPLES, seed: int = 0, track: Track = lambda blocks: blocks
    ) -> list[Row]:
        """One row per bin, then one for all words."""
        bits = self.bits.reshape(-1, len(LABELS))
        counts = self.counts.reshape(-1, len(LABELS))
        bits = np.concatenate([bits, bits.sum(1, keepdims=True)], axis=1)
        counts = np.concatenate([counts, counts.sum(1, keepdims=True)], axis=1)
        drawn = bootstrap(bits, counts, samples, seed, track)
        rows = []
        for i, label in enumerate((*LABELS, "all")):
            n = int(counts[:, i].sum())
            known = drawn[:, i][~np.isnan(drawn[:, i])]
            if not n or not len(known):
                rows.append(Row(label, n, None, None, None))
                continue
            low, high = np.percentile(known, [2.5, 97.5])
            mean = bits[:, i].sum() / n
            rows.append(Row(label, n, float(np.exp2(mean)), float(low), float(high)))
        return rows


def draws(sequences: int, samples: int, seed: int, block: int, per_block: int) -> np.ndarray:
    """int64 [rows, sequences]: the sequences in each sample of a block."""
    rows = min(per_block, samples - block * per_block)
    raw = words(rows * sequences, seed, "bootstrap", index=block)
    chosen = (raw >> np.uint64(32)) * np.uint64(sequences) >> np.uint64(32)
    return chosen.astype(np.int64).reshape(rows, sequences)


def bootstrap(
    bits: np.ndarray, counts: np.ndarray, samples: int, seed: int, track: Track
) -> np.ndarray:
    """[samples, K] perplexities of resampled sequences; bits, counts [sequences, K]. NaN: no word."""
    n = len(bits)
    per_block = max(1, BLOCK // n)
    both = np.concatenate([bits, counts], axis=1)
    parts = []
    for block in track(range(-(-samples // per_block))):
        chosen = draws(n, samples, seed, block, per_block)
        flat = (chosen + n * np.arange(len(chosen))[:, None]).ravel()
        times = np.bincount(flat, minlength=chosen.size).reshape(chosen.shape)
        sums, totals = np.split(times @ both, 2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            parts.append(np.exp2(np.where(totals > 0, sums / totals, np.nan)))
    return np.concatenate(parts)
