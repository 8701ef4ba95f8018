"""tsm-eval of classifiers and taggers."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from tsm.plugin import load_checkpoint
from tsm.plugin.data import DataDir
from tsm.plugin.evaluation.by_label import LabelSums
from tsm.plugin.tasks.base import Batch


def results(run_eval, tmp_path, *args):
    code, out, err = run_eval(*args, "--json", tmp_path / "r.json")
    assert (code, err) == (0, "")
    return json.loads((tmp_path / "r.json").read_text()), out


@pytest.fixture
def answers(reviews):
    """(bits of the right label, whether the prediction is right, words, label, predicted label) of every test
    text, each run alone."""
    model, _ = load_checkpoint(reviews.path)
    corpus = DataDir(reviews.data).corpus("test")
    rows = []
    for i in range(corpus.items):
        with torch.no_grad():
            logits, _ = model(torch.from_numpy(corpus.item(i, 40))[None])
        label = int(corpus.labels[i])
        bits = -torch.log2(torch.softmax(logits[0].double(), -1)[label])
        given = int(logits[0].argmax())
        rows.append((float(bits), given == label, len(corpus.item(i)), label, given))
    return rows


def test_loss_and_accuracy(run_eval, tmp_path, reviews, answers):
    found, out = results(run_eval, tmp_path, "--path", reviews.path)
    assert found["sequences"] == len(answers) == 30
    assert found["loss"] == pytest.approx(np.mean([a[0] for a in answers]), abs=1e-5)
    assert found["accuracy"] == pytest.approx(np.mean([a[1] for a in answers]))
    assert f"Accuracy: {100 * found['accuracy']:.2f}%" in out and "Loss (base 2): " in out
    assert "erplexity" not in out and "perplexity" not in found


def test_by_label(run_eval, tmp_path, reviews, answers):
    found, out = results(run_eval, tmp_path, "--path", reviews.path)
    pairs = [(label, given) for *_, label, given in answers]
    rows = found["by_label"]
    assert sum(row["count"] for row in rows) == sum(row["predicted"] for row in rows) == len(pairs)
    for number, row in enumerate(rows):
        right = pairs.count((number, number))
        assert row["count"] == sum(label == number for label, _ in pairs)
        assert row["predicted"] == sum(given == number for _, given in pairs)
        assert row["recall"] == pytest.approx(right / row["count"])
        precision = right / row["predicted"] if row["predicted"] else None
        assert row["precision"] == precision
        assert f"{row['label']:<16}{row['count']:>8,}" in out


def test_counts_by_label():
    """Steps of weight 0 do not count; a label that is never used or predicted has no precision, recall or
    F1."""
    sums = LabelSums(["a", "b", "c"])
    logits = torch.eye(3)[torch.tensor([[0, 1, 1], [1, 0, 0]])]
    target = torch.tensor([[0, 0, 1], [1, 1, 0]])
    weight = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    sums.add_batch(logits, Batch(torch.zeros(2, 3, 1), target, weight=weight))
    assert [dataclasses.astuple(row) for row in sums.table()] == [
        ("a", 2, 2, 1 / 2, 1 / 2, 1 / 2),
        ("b", 3, 3, 2 / 3, 2 / 3, 2 / 3),
        ("c", 0, 0, None, None, None),
    ]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batch_size_does_not_matter(run_eval, tmp_path, reviews, size):
    usual, _ = results(run_eval, tmp_path, "--path", reviews.path)
    found, _ = results(run_eval, tmp_path, "--path", reviews.path, "--batch-size", size)
    assert found["loss"] == pytest.approx(usual["loss"], abs=1e-6)
    assert found["accuracy"] == usual["accuracy"]


def test_by_length(run_eval, tmp_path, reviews, answers):
    args = ("--path", reviews.path, "--by-length", "--length-bins", "10,30")
    found, out = results(run_eval, tmp_path, *args)
    groups = [[a[1] for a in answers if a[2] <= 10], [a[1] for a in answers if 10 < a[2] <= 30]]
    groups.append([a[1] for a in answers if a[2] > 30])
    rows = found["by_length"]
    assert [r["label"] for r in rows] == ["1-10", "11-30", "over 30"]
    for row, group in zip(rows, groups, strict=True):
        assert row["sequences"] == len(group) > 0
        assert row["accuracy"] == pytest.approx(np.mean(group))
        assert row["low"] < row["accuracy"] < row["high"] or np.mean(group) in (0, 1)
    assert "over 30" in out


def test_default_bins_end_where_texts_are_cut(run_eval, tmp_path, reviews):
    found, _ = results(run_eval, tmp_path, "--path", reviews.path, "--by-length")
    labels = [r["label"] for r in found["by_length"]]
    assert labels == [*(f"{a + 1}-{a + 5}" for a in range(0, 40, 5)), "over 40"]


def test_a_tagger(run_eval, tmp_path, tagger):
    found, out = results(run_eval, tmp_path, "--path", tagger, "--by-length")
    assert found["task"] == "copy" and "Accuracy: " in out
    assert found["by_length"][-1]["accuracy"] == pytest.approx(found["accuracy"])
