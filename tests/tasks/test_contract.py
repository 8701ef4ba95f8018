"""Every generated task keeps its contract: it gives the same data on every machine, splits it by rank, and can
start anywhere."""

import argparse
import dataclasses
import re

import pytest
import torch

from tsm.plugin import config
from tsm.plugin.tasks import TASKS, Batch

SMALL = {
    "copy": {"copy_length": 7, "copy_train": 300, "copy_valid": 50, "batch_size": 16},
    "copy-variable": {
        "copy_length": 5,
        "copy_length_max": 9,
        "copy_train": 300,
        "copy_valid": 50,
        "batch_size": 16,
    },
    "adding": {
        "adding_length": 41,
        "adding_updates": 9,
        "adding_valid": 70,
        "batch_size": 16,
    },
    "dyck2": {"dyck_train": 300, "dyck_valid": 60, "dyck_test": 70, "batch_size": 16},
    "frequency": {"frequency_train": 200, "frequency_valid": 50, "batch_size": 16},
    "frequency-sync": {
        "frequency_train": 200,
        "frequency_valid": 50,
        "batch_size": 16,
        "frequency_sampling": "sync",
        "frequency_step": 0.5,
        "frequency_time": True,
    },
}
GOLDEN = {  # batch 3 of epoch 2, and the first validation batch, for seed 1
    "copy": ("89b45f40e16642af", "6b607a8490596760"),
    "copy-variable": ("8a87e4db5a4a9446", "4031ea7b458a59ae"),
    "adding": ("2d4f5fb453ac4187", "1d40e24cebf7ace1"),
    "dyck2": ("b017536b65371f67", "abfb3feaaf1e5a8e"),
    "frequency": ("6d578e7145bd43c8", "b96db2d0688906fd"),
    "frequency-sync": ("53fd28d8be5ee534", "e0c412d38bf819ff"),
}
cases = pytest.mark.parametrize("case", SMALL)


def same(a: Batch, b: Batch) -> bool:
    for field in dataclasses.fields(Batch):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if isinstance(left, torch.Tensor):
            if left.dtype != right.dtype or not torch.equal(left, right):
                return False
        elif left != right:
            return False
    return True


def stack(parts: list[Batch]) -> Batch:
    values = {}
    for field in dataclasses.fields(Batch):
        rows = [getattr(part, field.name) for part in parts]
        values[field.name] = torch.cat(rows) if isinstance(rows[0], torch.Tensor) else rows[0]
    return Batch(**values)


@pytest.fixture
def small(make):
    return lambda case, *where, **more: make(
        re.sub("-.*", "", case), *where, **{**SMALL[case], **more}
    )


@cases
def test_the_same_seed_gives_the_same_batches(small, case):
    one, two = small(case), small(case)
    assert len(list(one.train_batches(2))) == one.batches_per_epoch(2)
    for a, b in zip(one.train_batches(2), two.train_batches(2), strict=True):
        assert same(a, b)
    for a, b in zip(one.eval_batches("valid"), two.eval_batches("valid"), strict=True):
        assert same(a, b)


@cases
def test_seed_epoch_and_split_change_the_data(small, case):
    task = small(case)
    first = next(task.train_batches(1))
    assert not same(first, next(task.train_batches(2)))
    assert not same(first, next(small(case, data_seed=2).train_batches(1)))
    assert not same(next(task.eval_batches("valid")), next(task.eval_batches("test")))
    other = small(case, data_seed=2)
    assert not same(next(task.eval_batches("valid")), next(other.eval_batches("valid")))


@cases
def test_the_seed_of_the_training_leaves_the_data_alone(small, case):
    """Runs with different seeds differ in their weights and in the order of the rows, but not in the rows
    themselves."""
    one, two = small(case), small(case, seed=2)
    for split in ("valid", "test"):
        for a, b in zip(one.eval_batches(split), two.eval_batches(split), strict=True):
            assert same(a, b)
    rows = [
        sorted(tuple(row[row != 0].tolist()) for batch in t.train_batches(1) for row in batch.x)
        for t in (one, two)
    ]
    assert rows[0] == rows[1]


@cases
def test_golden_data(small, case, checksum):
    """If these checksums change, the same command trains on other data; note the change under *Numerics* in the
    CHANGELOG."""
    task = small(case)
    found = (checksum(next(task.train_batches(2, 3))), checksum(next(task.eval_batches("valid"))))
    assert found == GOLDEN[case]


@cases
def test_start_skips_batches(small, case):
    whole = list(small(case).train_batches(3))
    for start in (0, 1, len(whole) - 1, len(whole)):
        rest = list(small(case).train_batches(3, start))
        assert len(rest) == len(whole) - start
        assert all(same(a, b) for a, b in zip(rest, whole[start:], strict=True))


@cases
@pytest.mark.parametrize("world", [2, 3])
def test_the_ranks_batches_are_the_global_batch(small, case, world):
    ranks = [small(case, rank, world) for rank in range(world)]
    for whole, *parts in zip(
        small(case).train_batches(1), *(r.train_batches(1) for r in ranks), strict=True
    ):
        assert same(stack(parts), whole)
    for whole, *parts in zip(
        small(case).eval_batches("test"), *(r.eval_batches("test") for r in ranks), strict=True
    ):
        assert same(stack(parts), whole)


@cases
def test_shapes_follow_the_contract(small, case):
    task = small(case)
    arguments = task.model_arguments()
    for batch in [*task.train_batches(1), *task.eval_batches("valid")]:
        rows, steps = batch.x.shape[:2]
        if "input_size" in arguments:
            assert batch.x.shape == (rows, steps, arguments["input_size"])
            assert batch.x.dtype == torch.float32
        else:
            assert batch.x.ndim == 2 and batch.x.dtype == torch.int64
            assert batch.x.min() >= 0 and batch.x.max() < arguments["vocab_size"]
        if task.family == "classifier":
            assert batch.target.shape == (rows,)
        elif task.criterion == "cross_entropy":
            assert batch.target.shape == (rows, steps)
        else:
            assert batch.target.shape == (rows, steps, arguments["num_classes"])
        assert rows <= task.config.batch_size
        if batch.lengths is not None:
            assert batch.lengths.min() >= 1 and batch.lengths.max() == steps
        if batch.weight is not None:
            assert batch.weight.shape == (rows, steps)
        assert (batch.dt is not None) == task.takes_dt()


@cases
def test_perfect_answers_count_as_right(small, case):
    task = small(case)
    for batch in task.eval_batches("test"):
        if task.criterion == "cross_entropy":
            classes = task.model_arguments()["num_classes"]
            logits = torch.nn.functional.one_hot(batch.target, classes).float()
        elif task.criterion == "sigmoid_mse":
            logits = 2 * batch.target - 1
        else:
            logits = batch.target
        ((right, count),) = task.metrics(logits, batch).values()
        assert right == count > 0
        ((right, count),) = task.metrics(-logits, batch).values()
        assert right < count


@pytest.mark.parametrize(
    "name", ["copy", "adding", "dyck2", "frequency", "smnist", "psmnist", "scifar"]
)
def test_config_makes_flags(name):
    cls = TASKS.get(name).Config
    names = {field.name for field in dataclasses.fields(cls)}
    assert {"data", "batch_size", "seed"} <= names
    assert cls.__dataclass_params__.frozen
    parser = argparse.ArgumentParser()
    config.add_flags(parser, cls)
    given = parser.parse_args(["--seed", "7", "--batch-size", "3"])
    built = config.build(cls, vars(given))
    assert built == cls(seed=7, batch_size=3)


@cases
def test_summary_is_one_line(small, case):
    assert "\n" not in small(case).summary() and "seed 1" in small(case).summary()


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("copy", {"copy_length": 0}, "copy_length is 0; accepted: 1 or more"),
        ("copy", {"copy_length": 9, "copy_length_max": 5}, "copy_length_max is 5"),
        ("copy", {"batch_size": 0}, "batch_size is 0"),
        ("copy", {"seed": -1}, "seed is -1"),
        ("adding", {"adding_length": 1}, "adding_length is 1"),
        ("dyck2", {"dyck_length": 10}, "dyck_length is 10"),
        ("frequency", {"frequency_step": 0.0}, "frequency_step is 0.0"),
        ("frequency", {"frequency_sampling": "odd"}, "frequency_sampling is 'odd'"),
        ("frequency", {"frequency_negatives": "odd"}, "frequency_negatives is 'odd'"),
    ],
)
def test_bad_settings_are_named(make, name, settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make(name, **settings)


def test_ranks_and_splits_are_checked(make):
    with pytest.raises(ValueError, match="rank is 2 of 2"):
        make("adding", 2, 2)
    with pytest.raises(ValueError, match="batch_size is 2 for 3 processes"):
        make("adding", 0, 3, batch_size=2)
    with pytest.raises(ValueError, match="'train'; accepted: valid, test"):
        next(make("adding").eval_batches("train"))
    with pytest.raises(ValueError, match="epoch is 0"):
        next(make("adding").train_batches(0))
