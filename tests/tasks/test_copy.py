"""Copy memory compared with a sequence written by hand."""

import math

import numpy as np
import torch


def by_hand(symbols, wait, m=8):
    n, dummy, signal = len(symbols), m, m + 1
    x = [*symbols, *[dummy] * wait, signal, *[dummy] * (n - 1)]
    return x, [dummy] * (n + wait) + list(symbols)


def test_every_row_is_the_papers_sequence(make):
    task = make("copy", copy_length=23, copy_train=1000, copy_valid=100)
    for batch in [*task.train_batches(1), *task.eval_batches("valid")]:
        assert batch.x.shape[1] == 23 + 20
        assert batch.weight is None and batch.lengths is None
        for x, target in zip(batch.x.tolist(), batch.target.tolist(), strict=True):
            assert all(0 <= symbol < 8 for symbol in x[:10])
            assert (x, target) == by_hand(x[:10], 23)


def test_variable_copy(make):
    task = make("copy", copy_length=4, copy_length_max=11, copy_train=2000, copy_valid=100)
    waits = []
    for batch in task.train_batches(1):
        for row, length in enumerate(batch.lengths.tolist()):
            x, target = batch.x[row].tolist(), batch.target[row].tolist()
            waits.append(length - 20)
            assert (x[:length], target[:length]) == by_hand(x[:10], length - 20)
            assert set(x[length:]) <= {8} and set(target[length:]) <= {8}
            assert batch.weight[row].tolist() == [1.0] * length + [0.0] * (len(x) - length)
    counts = np.bincount(waits, minlength=12)[4:]
    assert len(counts) == 8 and counts.min() > 190  # 250 each, standard deviation 15


def test_an_epoch_is_every_row_once(make):
    task = make("copy", copy_length=1, copy_train=1001, copy_valid=10, copy_symbols=20)
    epochs = []
    for epoch in (1, 2):
        batches = list(task.train_batches(epoch))
        assert [len(b.x) for b in batches] == [125, 125, 125, 125, 125, 125, 125, 126]
        epochs.append(torch.cat([b.x for b in batches]).tolist())
    assert epochs[0] != epochs[1] and sorted(epochs[0]) == sorted(epochs[1])


def test_fresh_sequences_in_every_epoch(make):
    task = make("copy", copy_length=3, copy_train=300, copy_valid=10, copy_fresh=True)
    fixed = make("copy", copy_length=3, copy_train=300, copy_valid=10)
    rows = {e: torch.cat([b.x for b in task.train_batches(e)]).tolist() for e in (1, 2)}
    assert len(rows[1]) == len(rows[2]) == 300
    shared = {tuple(row) for row in rows[1]} & {tuple(row) for row in rows[2]}
    assert not shared  # 8^10 sequences
    for x in rows[2]:
        assert x == by_hand(x[:10], 3)[0]
    late = next(iter(task.train_batches(2, 1)))  # starts in the middle of a later epoch
    assert torch.equal(late.x, torch.tensor(rows[2])[100 : 100 + len(late.x)])
    for a, b in zip(task.eval_batches("valid"), fixed.eval_batches("valid"), strict=True):
        assert torch.equal(a.x, b.x)


def test_paper_defaults(make):
    task = make("copy")
    assert task.batches_per_epoch(1) == 782
    assert task.batches("valid") == math.ceil(10_000 / 128)
    assert task.model_arguments() == {
        "vocab_size": 10,
        "num_classes": 10,
        "decoder_embed_dim": 0,
    }
    symbols = task._sets["train"][0]
    share = np.bincount(symbols.ravel(), minlength=8) / symbols.size
    assert np.abs(share - 1 / 8).max() < 0.002


def test_accuracy_counts_the_last_ten_only(make):
    task = make("copy", copy_length=6, copy_train=50, copy_valid=50, batch_size=50)
    batch = next(task.eval_batches("valid"))
    logits = torch.nn.functional.one_hot(batch.target, 10).float()
    logits[:, :16] = -logits[:, :16]  # errors before the signal are not counted
    logits[:, -1] = -logits[:, -1]
    assert task.metrics(logits, batch) == {"accuracy": (450.0, 500.0)}
