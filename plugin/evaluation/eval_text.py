"""Evaluation of a language model on a split of text: loss in bits, perplexity, and optional measurements."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..config import build, check_types
from ..data import DataDir, Vocab
from ..data.batching import Tokens
from ..data.subword import SentencePieceTokenizer
from ..tasks import TASKS
from ..tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask, eval_steps
from ..train.checkpoint_check import named
from ..trained import Trained
from .adapt import NOT_ADAPTING, Adaptation, score_adapting
from .baselines import unigram_bits, xz_bits
from .frequency_bins import FrequencyBins
from .score import score_tokens
from .word_probs import word_probs

Results = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """A split: its tokens, the name of their unit, and the number of words (None: not known)."""

    name: str
    tokens: Tokens
    unit: str = "word"
    words: int | None = None


@dataclass(frozen=True)
class Wanted:
    """What to compute besides loss and perplexity.

    counts: word counts for the bins (None: those of the training data). sequences: also keep the bits of every
    sequence of words.
    """

    frequency_bins: bool = False
    baselines: bool = False
    word_probs: Path | None = None
    seed: int = 0
    counts: np.ndarray | None = None
    sequences: bool = False
    adaptation: Adaptation = NOT_ADAPTING


@dataclass(frozen=True)
class Watch:
    """Receives progress: tokens scored, and blocks of bootstrap samples."""

    tokens: Callable[[int], None] = lambda n: None
    blocks: Callable[[range], Iterable[int]] = lambda blocks: blocks


def is_text_model(trained: Trained) -> bool:
    """Whether the model is a language model."""
    return issubclass(TASKS.get(trained.config["task"]["name"]), LanguageModelingTask)


def open_text(trained: Trained, data: str, split: str) -> Text:
    """The split of a preprocessed folder, or of the built-in corpus if `data` is ""; the dictionary must be
    that of the model."""
    if not data:
        task = LanguageModelingTask(task_config(trained))
        check_vocab(trained, task.vocab, "the built-in corpus")
        if split not in task.splits:
            raise ValueError(f"split is {split!r}; accepted: {', '.join(task.splits)}")
        return Text(task.dataset, task.splits[split])
    folder = DataDir(data)
    if folder.meta.task != "language_modeling":
        raise ValueError(
            f"{data} was preprocessed for {folder.meta.task}; {trained.path} is a language model"
        )
    check_vocab(trained, folder.vocab, data)
    tokens = folder.corpus(split)
    kind = str((folder.meta.tokenizer or {}).get("kind"))
    unit = "character" if kind.startswith("char") else "word"
    if kind == SentencePieceTokenizer.kind:
        unit = "piece"
    words = folder.meta.splits[split].get("words")
    return Text(folder.meta.dataset or folder.folder.name, tokens, unit, words)


def task_config(trained: Trained, **changes: Any) -> Any:
    """The settings of the training task, with the given changes."""
    values = dict(trained.config["task"])
    task = TASKS.get(values.pop("name"))
    if "data_seed" not in values and hasattr(task.Config, "data_seed"):
        values["data_seed"] = values.get("seed", 1)  # older checkpoints use `seed` for data too
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    with named(trained.path, "config.task"):
        check_types(task.Config, plain)
    return build(task.Config, {**plain, **changes})


def check_vocab(trained: Trained, vocab: Vocab, where: str) -> None:
    """Raises ValueError unless tokens of the data mean the same as in training."""
    if vocab.fingerprint() != trained.config["text"].get("dictionary"):
        raise ValueError(
            f"the dictionary of {where} ({len(vocab):,} symbols) does not fit the checkpoint "
            f"{trained.path}, whose model was trained with another one "
            f"({len(trained.vocab):,} symbols); preprocess the text with the dict.txt of its "
            "training data (tsm-preprocess --srcdict, or --sentencepiece-model for pieces)"
        )


def default_batch_size(config: LanguageModelingConfig, split: str) -> int:
    """For valid, the batch size used in training, to reproduce the logged numbers; for test, 1, which gives the
    exact score."""
    return {"valid": config.valid_batch_size, "train": config.batch_size}.get(
        split, config.test_batch_size
    )


def default_steps(
    config: LanguageModelingConfig, batch_size: int, vocab_size: int, learns: bool = False
) -> int:
    """The steps per call of a validation in training; a model that learns as it reads keeps those of an
    update."""
    return config.tokens_per_sample if learns else eval_steps(config, batch_size, vocab_size)


def evaluate_text(
    trained: Trained,
    text: Text,
    batch_size: int,
    steps: int,
    device: torch.device,
    wanted: Wanted,
    watch: Watch,
) -> Results:
    """Loss (bits per token), perplexity, ... as plain values."""
    if wanted.word_probs is not None and batch_size != 1:
        raise ValueError(
            f"--batch-size is {batch_size}; accepted with --output-word-probs: 1, since it writes the tokens "
            "in order"
        )
    if wanted.baselines and text.unit != "character":
        raise ValueError(f"--baselines is for character models; this is a model of {text.unit}s")
    config = task_config(trained)
    per_stream = len(text.tokens) // batch_size - 1
    began, total, count = time.monotonic(), 0.0, 0
    bins = None
    if wanted.frequency_bins:
        counts = trained.vocab.counts if wanted.counts is None else wanted.counts
        bins = FrequencyBins(counts, batch_size, max(per_stream, 0))
    with ExitStack() as stack:
        write = None
        if wanted.word_probs is not None:
            write = stack.enter_context(word_probs(wanted.word_probs, trained.vocab))
        how = (batch_size, steps, not config.reset_state, device)
        for scores in (
            score_adapting(trained.model, text.tokens, *how, wanted.adaptation)
            if wanted.adaptation
            else score_tokens(trained.model, text.tokens, *how)
        ):
            total, count = total + float(scores.bits.sum()), count + scores.bits.size
            if bins is not None:
                bins.add(*scores)
            if write is not None:
                write(scores.target[0], scores.bits[0])
            watch.tokens(scores.bits.size)
        loss = check_finite(total / count, trained.path)
    found: Results = {
        "tokens": count,
        "seconds": time.monotonic() - began,
        "unit": text.unit,
        "loss": loss,
        "perplexity": perplexity(loss),
    }
    if wanted.adaptation:
        found["adaptation"] = dataclasses.asdict(wanted.adaptation)
    if text.unit == "character":
        found["bits_per_character"] = loss
    if text.unit == "piece" and text.words:
        found["per_word"] = per_word(loss, len(text.tokens), text.words)
    if wanted.baselines:
        bits = {"unigram": unigram_bits(trained.vocab, text.tokens)}
        found["baselines"] = {**bits, "xz": xz_bits(trained.vocab, text.tokens)}
    if bins is not None:
        rows = bins.table(seed=wanted.seed, track=watch.blocks)
        found["frequency_bins"] = [dataclasses.asdict(row) for row in rows]
        if wanted.sequences:
            found["sequences"] = bins.sequences().tolist()
    return found


def per_word(loss: float, pieces: int, words: int) -> Results:
    """Bits per word (an end of line counts as one) = bits per piece x pieces / words, over the whole split."""
    bits = loss * pieces / words
    return {"loss": bits, "perplexity": perplexity(bits), "words": words}


def perplexity(bits: float) -> float:
    return 2**bits if bits < 1024 else math.inf


def check_finite(loss: float, path: Path) -> float:
    """Raises an error if the loss is not finite."""
    if not math.isfinite(loss):
        raise ArithmeticError(f"the loss of {path} is {loss}: its weights have diverged")
    return loss
