"""Streams: targets are the next inputs, nothing is lost or repeated, the ranks together give the batches of one
process, and resuming is exact."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsm.plugin.data import FixedLength, LMStreams, RandomLength, TokenArray


def corpus(n: int) -> TokenArray:
    return TokenArray(np.arange(n), n)


@given(st.integers(2, 400), st.integers(1, 9), st.integers(1, 50))
def test_each_stream_runs_on_without_a_gap(n, batch_size, bptt):
    if n // batch_size < 2:
        return
    streams = LMStreams(corpus(n), batch_size, FixedLength(bptt))
    left = streams.batches_left()
    batches = list(streams)
    assert len(batches) == left == -(-(n // batch_size - 1) // bptt)
    x = np.concatenate([b.x for b in batches], axis=1)
    y = np.concatenate([b.y for b in batches], axis=1)
    length = n // batch_size
    expected = np.arange(batch_size * length).reshape(batch_size, length)
    np.testing.assert_array_equal(x, expected[:, :-1])
    np.testing.assert_array_equal(y, expected[:, 1:])
    assert x.dtype == y.dtype == np.int64
    assert [b.index for b in batches] == list(range(left))
    assert [b.start for b in batches] == [i * bptt for i in range(left)]
    assert sum(b.global_targets for b in batches) == y.size


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_ranks_together_are_the_single_process_batch(world):
    segments = RandomLength(bptt=20, seed=3)
    single = list(LMStreams(corpus(1000), 6, segments))
    ranks = [list(LMStreams(corpus(1000), 6, segments, r, world)) for r in range(world)]
    for i, batch in enumerate(single):
        np.testing.assert_array_equal(np.concatenate([r[i].x for r in ranks]), batch.x)
        np.testing.assert_array_equal(np.concatenate([r[i].y for r in ranks]), batch.y)
        assert {r[i].lr_scale for r in ranks} == {batch.lr_scale}
        assert {r[i].global_targets for r in ranks} == {batch.global_targets}


@pytest.mark.parametrize("stop", [0, 1, 4, 1000])
def test_resume_continues_with_the_very_next_batch(stop):
    def make(rank=0, world=1):
        return LMStreams(corpus(2000), 4, RandomLength(30, seed=7), rank, world)

    whole = make()
    whole.set_epoch(2)
    batches = list(whole)
    first = make()
    first.set_epoch(2)
    done = [first.next_batch() for _ in range(min(stop, len(batches)))]
    state = json.loads(json.dumps(first.state_dict()))
    second = make(1, 2)  # at another world size
    second.load_state_dict(state)
    rest = list(second)
    assert len(done) + len(rest) == len(batches)
    for a, b in zip(rest, batches[len(done) :], strict=True):
        np.testing.assert_array_equal(a.x, b.x[2:])
        assert (a.lr_scale, a.index, a.start, a.epoch) == (b.lr_scale, b.index, b.start, 2)
    assert second.finished


def test_awd_lengths_have_the_recipes_distribution():
    rule = RandomLength(bptt=70, seed=1)
    lengths = np.array([rule.length(0, i) for i in range(20_000)])
    short = lengths < 52  # 35 and 70 are 7 standard deviations apart
    assert abs(short.mean() - 0.05) < 0.006
    assert abs(lengths[~short].mean() - 69.5) < 0.2  # int() cuts half a step
    assert abs(lengths[~short].std() - 5) < 0.15
    assert abs(lengths[short].mean() - 34.5) < 0.7
    assert rule.scale(35) == 0.5
    assert min(RandomLength(bptt=6, seed=1).length(0, i) for i in range(500)) == 5


def test_lengths_depend_on_seed_epoch_and_index_alone():
    first = [RandomLength(70, seed=5).length(1, i) for i in range(30)]
    assert first == [RandomLength(70, seed=5).length(1, i) for i in range(30)]
    assert first != [RandomLength(70, seed=6).length(1, i) for i in range(30)]
    assert first != [RandomLength(70, seed=5).length(2, i) for i in range(30)]
    assert first[:10] == [68, 70, 67, 59, 30, 76, 36, 64, 66, 36]  # the same on every machine


def test_scale_is_that_of_the_batch_itself():
    for batch in LMStreams(corpus(600), 2, RandomLength(50, seed=0)):
        assert batch.lr_scale == batch.x.shape[1] / 50


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="3 tokens are too few for batch size 2"):
        LMStreams(corpus(3), 2, FixedLength(5))
    with pytest.raises(ValueError, match="batch size is 5; accepted: a multiple of the 2"):
        LMStreams(corpus(100), 5, FixedLength(5), 0, 2)
    with pytest.raises(ValueError, match="rank is 2 of world size 2"):
        LMStreams(corpus(100), 4, FixedLength(5), 2, 2)
    with pytest.raises(ValueError, match="bptt is 0"):
        FixedLength(0)
    with pytest.raises(ValueError, match="seed is -1"):
        RandomLength(70, seed=-1)


def test_a_state_of_other_data_is_refused():
    streams = LMStreams(corpus(100), 4, FixedLength(5))
    good = streams.state_dict()
    for name, value in (
        ("tokens", 99),
        ("batch_size", 2),
        ("position", 10**6),
        ("epoch", -1),
        ("index", "x"),
    ):
        with pytest.raises(ValueError, match="data position"):
            streams.load_state_dict({**good, name: value})
    with pytest.raises(ValueError, match="data position"):
        streams.load_state_dict({})


def test_an_epoch_that_is_over_says_so():
    streams = LMStreams(corpus(20), 2, FixedLength(50))
    list(streams)
    assert list(streams) == []
    with pytest.raises(ValueError, match=r"epoch 0 is over; set_epoch\(1\)"):
        streams.next_batch()
    streams.set_epoch(1)
    assert streams.next_batch().epoch == 1
