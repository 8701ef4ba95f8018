"""The result of `tsm.load` for every kind of file. It turns text and rows into text, scores and labels."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Tokenizer, Vocab
from ..data.ranges import FarOutside, Ranges, note
from ..data.reading import Reading
from ..data.roles import NoTimeSteps, no_time_steps

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Score:
    """The log probability of a text under a language model."""

    symbols: list[str]
    """The text as the model reads it."""
    log_probs: Array
    """float64 [n]: log p of each symbol given those before it (natural logarithms)."""

    @property
    def bits(self) -> float:
        """The cross entropy per symbol, in bits."""
        return -float(self.log_probs.mean()) / math.log(2)

    @property
    def perplexity(self) -> float:
        return 2**self.bits if self.bits < 1024 else math.inf


@dataclass(frozen=True)
class Prediction:
    """The predictions of a classifier for N inputs."""

    labels: list[str] | list[int]
    """N class names, or class indices if the model has no names."""
    indices: Array
    """int64 [N]: class indices."""
    probabilities: Array
    """float64 [N,C]"""


class LoadedModel(ABC):
    """A trained model. `model` is the underlying model: a torch module, or a `tsm.runtime.Model`."""

    path: Path
    family: str
    """ "lm", "classifier" or "tagger"."""
    labels: list[str] | None
    """The names of the classes, if the data has them."""
    targets: list[str] | None
    """The names of the outputs if they are numbers, not classes."""
    columns: list[str] | None
    """The names of the values of a step, if the data was a table."""
    ranges: Ranges | None
    """The smallest and largest value of each input in the training data, if they are known."""
    roles: dict[str, str]
    """Which columns of the training data named the "sequence" and held "dt" or "time"; {} if unknown."""
    reading: Reading | None
    """How many tokens of a text are read; None means all."""
    takes_dt: bool
    output_size: int
    model: Any

    @cached_property
    @abstractmethod
    def vocab(self) -> Vocab:
        """The dictionary; ValueError if the model was not trained on text."""

    @cached_property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    @property
    @abstractmethod
    def input_size(self) -> int | None:
        """The width of a row of values; None if the model reads tokens."""

    @abstractmethod
    def _generate(self, prompt: list[int], length: int, sampling: dict[str, Any]) -> list[int]: ...

    @abstractmethod
    def _log_probs(self, before: int, tokens: list[int]) -> Array:
        """log p of each token given those before it; the first one follows `before`."""

    @abstractmethod
    def run(self, rows: list[Array], dts: list[Array] | None) -> list[Array]:
        """The outputs for each row, tokens int64 [T] or values float32 [T,I]. dts: its steps, float32 [T]."""

    @property
    def reads(self) -> int | None:
        """The number of tokens of a text that are read; None means all."""
        return None if self.reading is None else self.reading.length

    def _filled(self, longest: int) -> int:
        """How many steps a batch has if its longest row has `longest`: more if the model reads through the
        padding."""
        if self.reading is None or not self.reading.fixed:
            return longest
        if longest > self.reading.length:
            raise ValueError(
                f"a text has {longest} tokens; accepted: at most {self.reading.length}, the length to which "
                f"{self.path} was trained to pad texts (--fixed-length)"
            )
        return self.reading.length

    def generate(
        self,
        prompt: str = "",
        length: int = 100,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> str:
        """Generates `length` symbols after the prompt, as text. With the same kind of file, the same seed gives
        the same text.

        An empty prompt means the end of a line. temperature 0 gives the most probable symbol.
        """
        self._needs("lm", "generate")
        before = self._tokens(prompt)
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        found = self._generate(before or [self.vocab.start], length, sampling)
        whole = self.tokenizer.decode([*before, *found], self.vocab)
        begin = self.tokenizer.decode(before, self.vocab)
        if whole.startswith(begin):  # keeps a space between prompt and continuation
            return whole[len(begin) :]
        return self.tokenizer.decode(found, self.vocab)

    def score(self, text: str) -> Score:
        """The log probability of each symbol of a text, as if the text followed the end of a line."""
        self._needs("lm", "score")
        tokens = self._tokens(text)
        if not tokens:
            raise ValueError("text is empty; accepted: one symbol or more")
        log_probs = np.asarray(self._log_probs(self.vocab.start, tokens), np.float64)
        return Score([self.vocab[token] for token in tokens], log_probs)

    def predict(self, inputs: Any, dt: Any = None) -> Prediction:
        """The classes of texts, or of sequences of tokens or values.

        inputs: a text or a list of texts; a list of sequences, [T] tokens or [T,I] values each; or an array of
        them. dt: time steps, for cells that take them: a number, or a list with [T] numbers for each sequence.
        """
        self._needs("classifier", "predict")
        if self.targets is not None:
            raise ValueError(
                f"predict() gives classes; {self.path} gives numbers ({', '.join(self.targets)}): "
                "call logits(inputs), or tsm-predict"
            )
        logits = np.stack(self.logits(inputs, dt)).astype(np.float64)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        best = shares.argmax(axis=1)
        numbers = best.tolist()
        named = numbers if self.labels is None else [self.labels[i] for i in numbers]
        return Prediction(named, best, shares)

    def logits(self, inputs: Any, dt: Any = None) -> list[Array]:
        """The outputs for each input, given as in `predict`: float [C] for a classifier, else [T,C]."""
        rows = self._rows(inputs)
        self._warn_of_far(rows)
        read = slice(self.reads)
        dts = None
        told = no_time_steps("dt is not given", self.path, self.roles)
        if dt is None and self.takes_dt and told:
            warnings.warn(told, NoTimeSteps, stacklevel=2)
        elif dt is not None:
            dts = [steps[read] for steps in _time_steps(dt, [len(row) for row in rows])]
        return self.run([row[read] for row in rows], dts)

    def _needs(self, family: str, method: str) -> None:
        if self.family != family:
            able = {"lm": "generate and score", "classifier": "predict"}.get(self.family)
            has = f"; it has {able}" if able else "; call its .model"
            raise ValueError(
                f"{method}() needs a {NAMES[family]}; {self.path} is a {NAMES[self.family]}{has}"
            )

    def _tokens(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise ValueError(f"text is a {type(text).__name__}; accepted: a str")
        vocab = self.vocab  # first, since it raises for a model with float inputs
        return vocab.ids(self.tokenizer.open_symbols(text))

    def _rows(self, inputs: Any) -> list[Array]:
        given = [inputs] if isinstance(inputs, str) else list(inputs)
        if not given:
            raise ValueError("inputs is empty; accepted: one or more")
        rows = []
        for number, one in enumerate(given):
            row = self._text_row(one, number) if isinstance(one, str) else np.asarray(one)
            width = self.input_size
            shape, kinds, what = (
                (1, "iu", "[T] tokens") if width is None else (2, "fiu", f"[T, {width}] values")
            )
            fits = row.ndim == shape and row.dtype.kind in kinds and len(row)
            if not fits or (width is not None and row.shape[1] != width):
                raise ValueError(
                    f"inputs[{number}] is {row.dtype} {row.shape}; accepted: {what}, at least one step"
                )
            with np.errstate(over="ignore"):
                row = row.astype(np.int64 if width is None else np.float32)
            if not np.isfinite(row).all():
                raise ValueError(f"inputs[{number}] has a number that is not finite in float32")
            rows.append(row)
        return rows

    def _warn_of_far(self, rows: list[Array]) -> None:
        """Warns of the first row that is far outside the training data."""
        if self.ranges is None:
            return
        for number, row in enumerate(rows):
            if found := self.ranges.outside(row, self.columns or ()):
                warnings.warn(note(f"inputs[{number}]", found), FarOutside, stacklevel=3)
                return

    def _text_row(self, text: str, number: int) -> Array:
        """Joins the text into one line, as in training."""
        vocab = self.vocab  # first, since it raises for a model with float inputs
        found = self.tokenizer.encode_line(" ".join(text.splitlines()), vocab)
        if not found:
            raise ValueError(f"inputs[{number}] is {text!r}; accepted: a text with a word in it")
        return np.array(found)

    def __repr__(self) -> str:
        return f"<tsm.load({str(self.path)!r}): {NAMES[self.family]}>"


def _time_steps(dt: Any, lengths: list[int]) -> list[Array]:
    """The time steps of sequences of these lengths, from a number or from [T] numbers for each."""
    try:
        if isinstance(dt, (int, float)) or getattr(dt, "ndim", None) == 0:
            return [np.full(length, float(dt), np.float32) for length in lengths]
        found = [np.asarray(one, np.float32) for one in dt]
        fits = [one.shape for one in found] == [(length,) for length in lengths]
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            "dt does not fit the inputs; accepted: a number, or [T] numbers for each of them"
        )
    return found


NAMES = {"lm": "language model", "classifier": "classifier", "tagger": "tagger"}
