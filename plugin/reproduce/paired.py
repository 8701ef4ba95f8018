"""The difference between two word models with its interval: a paired bootstrap (MTS tables 1 and 3).

sequences   100 words each of the test text, the same ones for both models
a sample    as many sequences, drawn with replacement; both models' perplexities on it
interval    percentiles 2.5 and 97.5 of the 10,000 differences
"""

from __future__ import annotations

from collections.abc import Sequence

from ..common.lazy import np
from ..evaluation.frequency_bins import SAMPLES, bootstrap
from .store import Summary

BITS = "sequence_bits"  # in a summary's details: [bits, words] of every sequence


def paired_interval(first: Sequence[Summary], second: Sequence[Summary]) -> str | None:
    """a - b over the seeds for which both models have bits; None if there are none."""
    a, b = (
        {run.seed: run.details[BITS] for run in runs if BITS in run.details}
        for runs in (first, second)
    )
    both = sorted(set(a) & set(b))
    if not both:
        return None
    ends = [interval(np.array(a[seed]), np.array(b[seed])) for seed in both]
    shown = ", ".join(
        f"{low:+.2f} to {high:+.2f} (seed {seed})"
        for seed, (low, high) in zip(both, ends, strict=True)
    )
    return f"95% of {SAMPLES:,} paired bootstrap samples: {shown}"


def interval(a: np.ndarray, b: np.ndarray, samples: int = SAMPLES) -> tuple[float, float]:
    """The interval of perplexity a - perplexity b; a, b [sequences, 2]: bits and words."""
    if a.shape != b.shape or not np.array_equal(a[:, 1], b[:, 1]):
        raise ValueError("two models scored different sequences; accepted: the same text for both")
    bits = np.stack([a[:, 0], b[:, 0]], axis=1)
    drawn = bootstrap(bits, np.stack([a[:, 1], b[:, 1]], axis=1), samples, 0, lambda blocks: blocks)
    low, high = np.percentile(drawn[:, 0] - drawn[:, 1], [2.5, 97.5])
    return float(low), float(high)
