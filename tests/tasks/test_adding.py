"""Adding against a plain loop."""

import pytest
import torch


def test_target_is_the_sum_of_the_marked(make):
    task = make("adding", adding_length=31, adding_updates=20, adding_valid=100)
    first, second, values = [], [], []
    for batch in [*task.train_batches(1), *task.eval_batches("valid")]:
        for x, target, weight in zip(batch.x, batch.target, batch.weight, strict=True):
            marks = [t for t in range(31) if x[t, 1] == 1]
            assert len(marks) == 2 and marks[0] < 15 <= marks[1]
            assert x[:, 1].sum() == 2
            assert target[-1, 0] == x[marks[0], 0] + x[marks[1], 0]
            assert target[:-1].abs().sum() == 0
            assert weight.tolist() == [0.0] * 30 + [1.0]
            first.append(marks[0])
            second.append(marks[1])
            values.append(x[:, 0])
    assert set(first) == set(range(15)) and set(second) == set(range(15, 31))
    u = torch.cat(values)
    assert u.min() >= 0 and u.max() <= 1
    assert abs(u.mean() - 0.5) < 0.01 and abs(u.var() - 1 / 12) < 0.003


def test_saying_one_has_an_error_of_a_sixth(make):
    task = make("adding", adding_length=50, adding_valid=4000, batch_size=500)
    error = torch.cat([b.target[:, -1, 0] - 1 for b in task.eval_batches("test")])
    assert len(error) == 4000
    assert error.square().mean().item() == pytest.approx(1 / 6, abs=0.01)


def test_paper_length_and_bound(make):
    task = make("adding", batch_size=4)
    batch = next(task.train_batches(1))
    assert batch.x.shape == (4, 5000, 2)
    logits = batch.target.clone()
    logits[:, -1, 0] += torch.tensor([0.0, 0.03, -0.05, 0.05])
    assert task.metrics(logits, batch) == {"right": (2.0, 4.0)}
