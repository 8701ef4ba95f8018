"""Classification batches: padding, truncation, order by seed and epoch, ranks, resuming."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tsm.plugin.data import ClassificationBatches

ITEMS = [list(range(1, n + 1)) for n in (3, 1, 5, 2, 4, 7, 6)]
LABELS = [0, 1, 1, 0, 1, 0, 1]


@pytest.fixture
def reviews(make_corpus):
    return make_corpus(ITEMS, LABELS, vocab_size=10)


def test_right_padding_to_the_longest_of_the_batch(reviews):
    batches = list(ClassificationBatches(reviews, 3, pad_id=10, shuffle=False))
    assert [b.x.shape for b in batches] == [(3, 5), (3, 7), (1, 6)]
    assert batches[0].x.tolist() == [[1, 2, 3, 10, 10], [1, 10, 10, 10, 10], [1, 2, 3, 4, 5]]
    assert batches[0].lengths.tolist() == [3, 1, 5]
    assert batches[0].y.tolist() == [0, 1, 1]
    assert batches[2].global_size == 1


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_max_length_cuts_and_fixed_length_also_fills(reviews, limit):
    cut = ClassificationBatches(reviews, 7, 10, shuffle=False, max_length=limit).next_batch()
    fixed = ClassificationBatches(reviews, 7, 10, shuffle=False, fixed_length=limit).next_batch()
    assert cut.x.shape == (7, min(limit, 7))
    assert fixed.x.shape == (7, limit)
    assert cut.lengths.tolist() == fixed.lengths.tolist() == [min(len(i), limit) for i in ITEMS]
    for row, item in zip(fixed.x.tolist(), ITEMS, strict=True):
        assert row == (item + [10] * limit)[:limit]


def test_every_item_once_an_epoch_in_an_order_of_its_own(reviews):
    batches = ClassificationBatches(reviews, 2, 10, seed=4)
    orders = []
    for epoch in range(3):
        batches.set_epoch(epoch)
        seen = list(batches)
        assert len(seen) == len(batches) == 4
        items = np.concatenate([b.items for b in seen])
        assert sorted(items.tolist()) == list(range(7))
        for b in seen:
            for i, length, label in zip(b.items, b.lengths, b.y, strict=True):
                assert (length, label) == (len(ITEMS[i]), LABELS[i])
        orders.append(items.tolist())
    assert orders[0] != orders[1] != orders[2]
    again = ClassificationBatches(reviews, 2, 10, seed=4)
    assert np.concatenate([b.items for b in again]).tolist() == orders[0]
    other = ClassificationBatches(reviews, 2, 10, seed=5)
    assert np.concatenate([b.items for b in other]).tolist() != orders[0]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_share_each_batch(reviews, world):
    whole = list(ClassificationBatches(reviews, 4, 10, seed=1))
    ranks = [
        list(ClassificationBatches(reviews, 4, 10, seed=1, rank=r, world_size=world))
        for r in range(world)
    ]
    for i, batch in enumerate(whole):
        assert np.concatenate([r[i].items for r in ranks]).tolist() == batch.items.tolist()
        assert {r[i].global_size for r in ranks} == {len(batch.items)}


@pytest.mark.parametrize(("most", "limit"), [(7, None), (8, None), (14, None), (8, 4), (100, None)])
def test_batches_by_tokens(reviews, most, limit):
    batches = ClassificationBatches(reviews, 2, 10, seed=9, max_tokens=most, max_length=limit)
    epochs = []
    for epoch in (1, 2):
        batches.set_epoch(epoch)
        found = list(batches)
        assert len(found) == len(batches)
        assert sorted(i for b in found for i in b.items.tolist()) == list(range(len(ITEMS)))
        assert all(b.x.size <= most for b in found)
        epochs.append([b.items.tolist() for b in found])
        for start in range(len(found) + 1):
            batches.set_epoch(epoch)
            batches.go_to(start)
            assert [b.items.tolist() for b in batches] == epochs[-1][start:]
    if most < 100:
        assert epochs[0] != epochs[1]
    for (
        batch
    ) in found:  # a batch covers a range of lengths: no text of another batch lies within it
        between = (batches.widths > batch.lengths.min()) & (batches.widths < batch.lengths.max())
        assert set(np.flatnonzero(between)) <= set(batch.items.tolist())


def test_a_text_that_max_tokens_cannot_hold(reviews):
    with pytest.raises(
        ValueError, match="max_tokens is 6; accepted: 7 or more, so that a whole text fits"
    ):
        ClassificationBatches(reviews, 2, 10, max_tokens=6)
    with pytest.raises(ValueError, match="accepted: 9 or more"):
        ClassificationBatches(reviews, 2, 10, max_tokens=8, fixed_length=9)


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_resume_is_exact(reviews, stop):
    whole = ClassificationBatches(reviews, 2, 10, seed=9)
    whole.set_epoch(3)
    batches = list(whole)
    first = ClassificationBatches(reviews, 2, 10, seed=9)
    first.set_epoch(3)
    for _ in range(stop):
        first.next_batch()
    second = ClassificationBatches(reviews, 2, 10, seed=9)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    rest = list(second)
    assert [b.items.tolist() for b in rest] == [b.items.tolist() for b in batches[stop:]]


def test_bad_data_and_arguments_are_named(reviews, make_corpus):
    with pytest.raises(ValueError, match="pad_id is 9, a token"):
        ClassificationBatches(reviews, 2, 9)
    with pytest.raises(ValueError, match="fixed_length is 0"):
        ClassificationBatches(reviews, 2, 10, fixed_length=0)
    with pytest.raises(ValueError, match="3 items, 0 labels"):
        ClassificationBatches(make_corpus([[1], [2], [3]], name="plain"), 2, 100)
    with pytest.raises(ValueError, match="item 1 is empty"):
        ClassificationBatches(make_corpus([[1], []], [0, 1], name="hole"), 2, 100)
    batches = ClassificationBatches(reviews, 2, 10)
    good = batches.state_dict()
    for bad in ({"items": 3}, {"seed": 1}, {"position": 99}, {"epoch": None}):
        with pytest.raises(ValueError, match="data position"):
            batches.load_state_dict({**good, **bad})
