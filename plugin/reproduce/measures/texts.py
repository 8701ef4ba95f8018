"""Measures of language models."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ...data import TokenArray
from ...evaluation import eval_text
from ...evaluation.score import score_tokens
from ...tasks.language_modeling import LanguageModelingTask
from ...train.objective import precision
from ...trained import open_trained
from ..paired import BITS
from ..recipe import WINDOWS
from .base import MEASURES, Found, Subject, evaluate_on, named

AT_ONCE = 1 << 16
"""The most tokens in one call."""


@MEASURES.register("carried")
def carried(subject: Subject) -> Found:
    """For models whose state is reset in training: the test score with the state carried instead."""
    task = subject.trainer.task
    assert isinstance(task, LanguageModelingTask)
    other = LanguageModelingTask(dataclasses.replace(task.config, reset_state=False))
    return named(evaluate_on(subject, other, "test"), "carried_"), {}


@MEASURES.register("bins")
def bins(subject: Subject) -> Found:
    """Test perplexity by word frequency (counted over all splits), with intervals, and the bits of every
    sequence (paired.py)."""
    trained = open_trained(subject.best, subject.where)
    config = eval_text.task_config(trained)
    text = eval_text.open_text(trained, subject.trainer.task.config.data, "test")
    steps = eval_text.default_steps(config, 1, text.tokens.vocab_size)
    task = subject.trainer.task
    assert isinstance(task, LanguageModelingTask)
    counts = sum(
        np.bincount(tokens.read(0, len(tokens)), minlength=len(trained.vocab))
        for tokens in task.splits.values()
    )
    wanted = eval_text.Wanted(frequency_bins=True, counts=np.asarray(counts), sequences=True)
    with precision(subject.where, subject.bf16):
        found = eval_text.evaluate_text(
            trained, text, 1, steps, subject.where, wanted, eval_text.Watch()
        )
    rows = found["frequency_bins"]
    metrics: dict[str, Any] = {}
    for i, row in enumerate(rows):
        name = "all" if row["label"] == "all" else f"splits_bin_{i}"
        if row["perplexity"] is not None:
            values = {"": row["perplexity"], "_low": row["low"], "_high": row["high"]}
            metrics |= {name + end: value for end, value in values.items()}
    bits = [[round(value, 2), int(words)] for value, words in found["sequences"]]
    return metrics, {"bins": rows, BITS: bits}


@MEASURES.register("windows")
def windows(subject: Subject) -> Found:
    """Bits per token of the first tokens of the test split, as many as the longest window has. The same text is
    cut into windows of each length; a window is one stream, so its state is carried to its end, and its first
    token is not scored. `lost_at`: the share of windows that take more bits than guessing."""
    task = subject.trainer.task
    assert isinstance(task, LanguageModelingTask)
    test = task.splits["test"]
    lengths = [max(2, w // 10_000) for w in WINDOWS] if subject.smoke else list(WINDOWS)
    if len(test) < lengths[-1]:
        raise ValueError(f"the test split has {len(test):,} tokens; needed: {lengths[-1]:,}")
    text = TokenArray(test.read(0, lengths[-1]), test.vocab_size)
    found = {}
    for window, length in zip(WINDOWS, lengths, strict=True):
        bits = _bits_of_streams(subject, text, lengths[-1] // length)
        found[f"bits_at_{window}"] = float(bits.mean())
        found[f"lost_at_{window}"] = float((bits > np.log2(len(task.vocab))).mean())
    gain = found[f"bits_at_{WINDOWS[1]}"] - found[f"bits_at_{WINDOWS[-1]}"]
    return {"window_gain": gain, **found}, {}


def _bits_of_streams(subject: Subject, text: TokenArray, streams: int) -> np.ndarray:
    """Bits per token of each stream."""
    model, where = subject.trainer.model, subject.where
    model.eval()
    steps = max(1, AT_ONCE // streams)
    with precision(where, subject.bf16):
        scores = score_tokens(model, text, streams, steps, True, where)
        return np.concatenate([part.bits for part in scores], axis=1).mean(1)
