"""Frequency bins, the bootstrap and accuracy by length compared with their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tsm.plugin.common.numbers import wilson
from tsm.plugin.evaluation.by_length import LengthSums, even_edges
from tsm.plugin.evaluation.frequency_bins import LABELS, FrequencyBins, bootstrap, draws


def label_of(count: int) -> str:
    if count >= 10_000:
        return ">=10K"
    if count >= 1_000:
        return "[1K,10K)"
    return "[100,1K)" if count >= 100 else "<100"


@pytest.fixture
def scored():
    """Two streams of 437 words, with counts at and around the edges of the bins."""
    rng = np.random.default_rng(0)
    counts = np.array([0, 1, 99, 100, 101, 999, 1_000, 5_000, 9_999, 10_000, 10_001, 10**7])
    target = rng.integers(len(counts), size=(2, 437))
    return counts, target, rng.gamma(2.0, 3.0, target.shape)


def filled(counts, target, bits, steps):
    bins = FrequencyBins(counts, *target.shape)
    for start in range(0, target.shape[1], steps):
        part = slice(start, start + steps)
        bins.add(start, target[:, part], bits[:, part])
    return bins


@pytest.mark.parametrize("steps", [1, 30, 1000])
def test_bins_are_those_of_the_counts(scored, steps):
    counts, target, bits = scored
    rows = filled(*scored, steps).table(samples=50)
    for label, row in zip(LABELS, rows, strict=False):
        own = [
            b
            for t, b in zip(target.ravel(), bits.ravel(), strict=True)
            if label_of(counts[t]) == label
        ]
        assert (row.label, row.words) == (label, len(own))
        assert row.perplexity == pytest.approx(2 ** np.mean(own), rel=1e-12)
    assert rows[-1].words == target.size
    assert rows[-1].perplexity == pytest.approx(2 ** bits.mean(), rel=1e-12)


def test_bootstrap_is_that_of_whole_sequences(scored):
    """The bootstrap equals a plain loop over samples: draw 100-word sequences, pool their words, compute the
    perplexity."""
    counts, target, bits = scored
    samples = 40
    cut = [(b, slice(i, i + 100)) for b in range(2) for i in range(0, 437, 100)]
    chosen = draws(len(cut), samples, 7, 0, samples)
    assert chosen.shape == (samples, 10) and set(chosen.ravel()) == set(range(10))
    brute: dict[str, list[float]] = {label: [] for label in LABELS}
    for sample in chosen:
        words = np.concatenate([target[cut[i]] for i in sample])
        losses = np.concatenate([bits[cut[i]] for i in sample])
        for label in LABELS:
            inside = np.array([label_of(counts[w]) == label for w in words])
            brute[label].append(2 ** losses[inside].mean())
    rows = filled(*scored, 50).table(samples, seed=7)
    for label, row in zip(LABELS, rows, strict=False):
        low, high = np.percentile(brute[label], [2.5, 97.5])
        assert row.low == pytest.approx(low, rel=1e-9)
        assert row.high == pytest.approx(high, rel=1e-9)


def test_blocks_do_not_matter_to_the_interval(scored, monkeypatch):
    """The interval has the right width: the mean of n sequences has a standard deviation of sd / sqrt n."""
    rng = np.random.default_rng(1)
    bits = rng.normal(500.0, 40.0, (400, 1))
    counts = np.full((400, 1), 100.0)
    found = np.log2(bootstrap(bits, counts, 10_000, 0, lambda blocks: blocks))[:, 0]
    low, high = np.percentile(found, [2.5, 97.5])
    half = 1.96 * bits.std() / math.sqrt(400) / 100
    assert low == pytest.approx(bits.mean() / 100 - half, abs=0.1 * half)
    assert high == pytest.approx(bits.mean() / 100 + half, abs=0.1 * half)


def test_a_bin_without_a_word_has_no_perplexity():
    bins = FrequencyBins(np.array([20_000, 50]), 1, 10)
    bins.add(0, np.zeros((1, 10), dtype=int), np.ones((1, 10)))
    rows = bins.table(samples=10)
    assert [r.perplexity for r in rows] == [2.0, None, None, None, 2.0]
    assert rows[3].low is None and rows[3].words == 0


def test_rare_words_may_be_absent_from_a_sample():
    """One of 20 sequences has the rare word; bootstrap samples without it do not distort the interval."""
    bins = FrequencyBins(np.array([20_000, 50]), 1, 2000)
    target = np.zeros((1, 2000), dtype=int)
    target[0, 5] = 1
    bins.add(0, target, np.full((1, 2000), 3.0))
    row = bins.table(samples=200)[3]
    assert (row.words, row.perplexity, row.low, row.high) == (1, 8.0, 8.0, 8.0)


def test_lengths():
    rng = np.random.default_rng(2)
    sums, rows = LengthSums(), []
    for length in rng.integers(1, 700, size=300).tolist():
        right = bool(rng.random() < 0.7)
        rows.append((length, right))
        sums.add(length, 1, float(right), 1.0)
    table = sums.table([100, 250], None)
    for row, (low, high) in zip(table, [(0, 100), (100, 250), (250, 10**9)], strict=True):
        own = [right for length, right in rows if low < length <= high]
        assert (row.sequences, row.accuracy) == (len(own), pytest.approx(np.mean(own)))
    assert [r.label for r in table] == ["1-100", "101-250", "over 250"]
    assert len(sums.table(None, 400)) == 9 and len(sums.table([700])) == 1


def test_edges():
    assert even_edges(400) == [50, 100, 150, 200, 250, 300, 350, 400]
    assert even_edges(3) == [1, 2, 3]
    assert even_edges(41) == [6, 12, 18, 24, 30, 36, 41]


def test_wilson_ends_are_where_the_test_just_accepts():
    for right, judged in ((7, 10), (0, 5), (25, 25), (123, 400)):
        for p in wilson(right, judged):
            if 1e-9 < p < 1 - 1e-9:
                z = abs(right / judged - p) / math.sqrt(p * (1 - p) / judged)
                assert z == pytest.approx(1.959964, abs=1e-5)
    assert wilson(0, 5)[0] == pytest.approx(0, abs=1e-12)
