"""Frequency discrimination: periods, times and dt, recovered from the batches."""

import numpy as np
import pytest
import torch

from tsm.plugin.common.rng import uniforms
from tsm.plugin.tasks.frequency import MIN_GAP, random_times


def rows(batch):
    for row, length in enumerate(batch.lengths.tolist()):
        yield (
            batch.x[row, :length].double().numpy(),
            batch.dt[row, :length].double().numpy(),
            int(batch.target[row]),
        )


def period_of(x, step):
    """The period T from x[i+1] + x[i-1] = 2 cos(2 pi step / T) x[i], solved by least squares."""
    middle, sides = x[1:-1], x[2:] + x[:-2]
    cosine = (middle @ sides) / (middle @ middle) / 2
    return 2 * np.pi * step / np.arccos(np.clip(cosine, -1, 1))


def test_synchronous_waves_have_their_label_s_period(make):
    task = make("frequency", frequency_sampling="sync", frequency_step=0.1, frequency_time=True)
    for _, batch in zip(range(12), task.train_batches(1), strict=False):
        assert batch.target.tolist() == [1, 0] * 16
        for x, dt, label in rows(batch):
            wave, t = x.T
            assert 150 <= len(t) <= 1250
            assert np.allclose(np.diff(t), 0.1, atol=1e-4)
            assert t[0] >= 0 and t[-1] <= 125
            assert dt[0] == 1 and np.all(dt[1:] == np.float32(0.1))
            period = period_of(wave, 0.1)
            assert (4.95 < period < 6.05) if label else not 5.05 < period < 5.95
            assert np.abs(wave).max() <= 1


def test_step_one_has_dt_one(make):
    task = make("frequency", frequency_sampling="sync")
    batch = next(task.train_batches(1))
    assert batch.x.shape[2] == 1 and torch.all(batch.dt == 1)
    assert batch.lengths.min() >= 15 and batch.lengths.max() <= 125


def test_asynchronous_times(make):
    task = make("frequency", frequency_time=True)
    lengths = []
    for batch in task.train_batches(1):
        assert batch.dt.min() > 1e-5  # the cell's eps
        for x, dt, _ in rows(batch):
            t = x[:, 1]
            lengths.append(len(t))
            assert np.all(np.diff(t) >= 0) and t[0] >= 0 and t[-1] <= 125
            assert dt[0] == 1 and np.all(dt[1:] >= MIN_GAP * (1 - 1e-6))
            assert dt[1:].sum() == pytest.approx(t[-1] - t[0], abs=1e-3)
        past = torch.arange(batch.x.shape[1]) >= batch.lengths[:, None]
        assert torch.all(batch.dt[past] == 1) and torch.all(batch.x[past] == 0)
    assert min(lengths) == 15 and max(lengths) == 124
    assert np.mean(lengths) == pytest.approx(69.5, abs=2)


def test_time_as_input_changes_nothing_else(make):
    without = next(make("frequency").train_batches(1))
    with_time = next(make("frequency", frequency_time=True).train_batches(1))
    assert torch.equal(without.x[..., 0], with_time.x[..., 0])
    assert torch.equal(without.dt, with_time.dt)
    assert make("frequency", frequency_time=True).model_arguments()["input_size"] == 2


def test_close_times_are_drawn_again():
    n = 40
    lengths = np.full(n, 100)
    times = random_times(np.zeros(n), np.full(n, 2.0), lengths, 1, "test", 1, 0)
    draw = uniforms(n * 100, 1, "test-times-0", 1, 0).reshape(n, 100)
    first = np.sort(2.0 * draw, axis=1)
    assert np.diff(first).min() < MIN_GAP <= np.diff(times).min()
    changed = (times != first).any(axis=1)
    close = (np.diff(first) < MIN_GAP).any(axis=1)
    assert np.array_equal(changed, close) and close.sum() > 0


def test_negative_periods(make):
    u = (np.arange(100_000) + 0.5) / 100_000
    log = make("frequency")._other(u)
    flat = make("frequency", frequency_negatives="uniform")._other(u)
    for periods in (log, flat):
        assert periods.min() > 1 and periods.max() < 100
        assert not ((periods > 5) & (periods < 6)).any()
    # compared with rejection sampling: draws from the whole range, without those in [5, 6]
    grid = np.exp(u * np.log(100))
    kept = grid[(grid < 5) | (grid > 6)]
    for q in (0.1, 0.3, 0.5, 0.9):
        assert np.quantile(log, q) == pytest.approx(np.quantile(kept, q), rel=1e-3)
    assert (flat < 5).mean() == pytest.approx(4 / 98, abs=1e-3)


def test_negative_periods_in_halves(make):
    u = (np.arange(1000) + 0.5) / 1000
    found = make("frequency", frequency_negatives="halves")._other(u)
    assert (found < 5).mean() == 0.5 and found.min() > 1 and found.max() < 100
    assert not ((found > 5) & (found < 6)).any()
    assert np.median(found[found < 5]) == pytest.approx(3, abs=0.01)
    assert np.median(found[found > 5]) == pytest.approx(53, abs=0.2)


@pytest.mark.parametrize("sampling", ["sync", "async"])
def test_the_first_dt_may_be_the_time_since_the_start(make, sampling):
    settings = {"frequency_sampling": sampling, "frequency_time": True}
    one = next(make("frequency", **settings).train_batches(1))
    start = next(make("frequency", frequency_first_dt="start", **settings).train_batches(1))
    assert torch.equal(one.x, start.x) and torch.equal(one.dt[:, 1:], start.dt[:, 1:])
    assert torch.all(one.dt[:, 0] == 1)
    assert torch.equal(start.dt[:, 0], start.x[:, 0, 1].clamp(min=MIN_GAP))


def test_phase_and_duration(make):
    """The wave is sin(2 pi t / T - s): recompute a few rows from their random draws."""
    task = make("frequency", frequency_time=True)
    batch = next(task.train_batches(1))
    draw = uniforms(5 * 32, 1, "frequency-train", 1, 0).reshape(5, 32)
    for row in (0, 2, 30):  # class 1
        length = int(batch.lengths[row])
        period, duration = 5 + draw[0, row], 15 + 110 * draw[1, row]
        start, shift = draw[2, row] * (125 - duration), draw[3, row] * duration
        assert length == int(15 + 110 * draw[4, row])
        t = batch.x[row, :length, 1].double().numpy()
        assert start - 1e-4 <= t.min() and t.max() <= start + duration + 1e-4
        wave = batch.x[row, :length, 0].double().numpy()
        assert np.allclose(wave, np.sin(2 * np.pi * t / period - shift), atol=1e-4)


def test_paper_sizes(make):
    task = make("frequency")
    assert task.batches_per_epoch(1) == 157
    assert sum(len(b.x) for b in task.eval_batches("test")) == 500
    labels = torch.cat([b.target for b in task.eval_batches("test")])
    assert labels.sum() == 250
