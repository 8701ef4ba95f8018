"""Dyck-2 compared with a stack machine and with string rewriting."""

import math

import numpy as np
import pytest
import torch

from tsm.plugin.tasks import dyck_grammar
from tsm.plugin.tasks.dyck_grammar import closing_types, derive, draw_rules, unique_sequences

TEXT = "()[]"


def by_rewriting(rules, longest):
    """The string that the rules produce by leftmost expansion; "" if it is too long or unfinished."""
    text, used = "S", iter(rules)
    while "S" in text:
        try:
            rule = next(used)
        except StopIteration:
            return ""
        text = text.replace("S", ["(S)", "[S]", "SS", ""][rule], 1)
        if len(text.replace("S", "")) > longest:
            return ""
    return text


def stack_machine(text):
    """After each symbol, the bracket that may close next; and for each closing bracket, how far back its
    opening bracket is."""
    partner = {"(": ")", "[": "]"}
    stack, answers, reach = [], [], []
    for t, symbol in enumerate(text):
        if symbol in partner:
            stack.append((symbol, t))
            reach.append(0)
        else:
            opening, at = stack.pop()
            assert partner[opening] == symbol
            reach.append(t - at)
        answers.append(partner[stack[-1][0]] if stack else None)
    assert not stack
    return answers, reach


def as_text(symbols):
    return "".join(TEXT[i] for i in symbols)


@pytest.mark.parametrize("longest", [200, 40])
def test_derivations_are_leftmost_expansions(longest):
    rules = draw_rules(longest, 5, 0)[:400]
    symbols, lengths = derive(rules, longest)
    found = [as_text(row[:n]) for row, n in zip(symbols, lengths, strict=True)]
    assert found == [by_rewriting(row, longest) for row in rules.tolist()]
    assert max(map(len, found)) > longest // 2


def test_rules_have_a_quarter_each():
    rules = draw_rules(200, 1, 0)
    assert rules.shape == (4096, 512)
    assert np.abs(np.bincount(rules.ravel(), minlength=4) / rules.size - 0.25).max() < 0.002


def test_length_two_has_its_probability():
    """e = p(empty) = 1/4 + e^2/4, so e = 2 - sqrt 3; p(one pair) = e/2 / (1 - e/2)."""
    lengths = np.concatenate([derive(draw_rules(60, 3, i), 60)[1] for i in range(4)])
    half = (2 - math.sqrt(3)) / 2
    expected = half / (1 - half)
    sigma = math.sqrt(expected * (1 - expected) / len(lengths))
    assert abs((lengths == 2).mean() - expected) < 4 * sigma


def test_sequences_are_unique_and_valid():
    found = [as_text(s) for s in unique_sequences(3000, 200, 1)]
    assert len(set(found)) == 3000
    for text in found:
        stack_machine(text)
        assert 2 <= len(text) <= 200
    assert found == [as_text(s) for s in unique_sequences(3000, 200, 1)]
    assert found[:100] == [as_text(s) for s in unique_sequences(100, 200, 1)]


def test_closing_types():
    answers, reach = closing_types(np.array([0, 2, 3, 1, 2, 3]))  # ( [ ] ) [ ]
    assert answers.tolist() == [0, 1, 0, -1, 1, -1]
    assert reach.tolist() == [0, 0, 1, 3, 0, 1]


@pytest.fixture(scope="module")
def task():
    from tsm.plugin.tasks.dyck2 import Dyck2Config, Dyck2Task

    return Dyck2Task(Dyck2Config())


def test_sizes_and_disjoint_splits(task):
    rows = {}
    for split in ("train", "valid", "test"):
        pool = task._numbers[split]
        rows[split] = {as_text(task._symbols[i, : task._lengths[i]]) for i in pool}
    assert [len(rows[s]) for s in rows] == [10_000, 2_000, 5_000]
    assert len(set().union(*rows.values())) == 17_000
    assert task.batches_per_epoch(1) == 79


def test_targets_follow_the_stack_machine(task):
    timescales = []
    for batch in task.eval_batches("test"):
        for row, length in enumerate(batch.lengths.tolist()):
            answers, reach = stack_machine(as_text(batch.x[row, :length].tolist()))
            expected = [[float(a == ")"), float(a == "]")] for a in answers]
            assert batch.target[row, :length].tolist() == expected
            assert batch.target[row, length:].sum() == 0
            assert batch.weight[row].sum() == length
            timescales.append(max(reach))
    assert task.timescales("test").tolist() == timescales


def test_one_wrong_output_spoils_a_sequence_but_padding_does_not(task):
    batch = next(task.eval_batches("valid"))
    logits = 2 * batch.target - 1
    shortest = int(batch.lengths.argmin())
    logits[shortest, int(batch.lengths[shortest]) :] = 5.0
    assert task.right(logits, batch).all()
    logits[3, 0, 1] *= -1
    right = task.right(logits, batch)
    assert right.sum() == len(right) - 1 and not right[3]
    assert task.metrics(logits, batch) == {"accuracy": (len(right) - 1.0, float(len(right)))}
    assert torch.is_tensor(right)


def test_lengths_have_a_heavy_tail(task):
    """Sequences are unique and have up to 200 symbols: half have at most 40, and 8% have more than 100."""
    assert np.median(task._lengths) <= 40
    assert (task._lengths > 100).mean() > 0.08
    assert task._lengths.max() == 200
    assert dyck_grammar.ROUND == 4096  # defines the data: the order of the words depends on it
