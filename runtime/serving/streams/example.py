"""What the page shows before anything is typed: a short text or signal, read by a stream that is not stored.

Its length is bounded by the numbers that it has, so that a large model does not make a large answer.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import Model, Stream, TsmError
from ..transport.limits import Limits
from .answers import texts_of, top_of
from .engine import memory_of
from .steps import Chunk, Step

TEXT = "the history of the city is the history of the people in it"
STEPS = 64
PERIOD = 16  # steps of the wave
TOP = 10
DIGITS = 3  # of a state, as the page shows it
WORD = re.compile(r"\s*\S+\s")  # as the page cuts a text


class Piece(NamedTuple):
    """What is read at once."""

    typed: str
    texts: list[str]  # of each step
    steps: Chunk


def example(model: Model, limits: Limits) -> bytes:
    """Pieces of the example with what follows from each, as JSON; a ValueError if a number is not finite."""
    with model.create_stream() as stream, model.create_stream() as scorer:
        numbers = sum(layer.size for layers in stream.state().values() for layer in layers)
        numbers += TOP if model.family == "lm" else model.output_size
        steps = max(1, min(STEPS, limits.tokens, limits.numbers // numbers))
        read = (_read(stream, scorer, piece) for piece in _pieces(model, steps))
        return b'{"pieces": [%s]}' % b", ".join(
            json.dumps(piece, allow_nan=False).encode() for piece in read
        )


def _read(stream: Stream, scorer: Stream, piece: Piece) -> dict[str, Any]:
    model, last = stream.model, stream.feed(piece.steps, last_only=True)
    answer: dict[str, Any] = {"typed": piece.typed, "texts": piece.texts}
    if model.family == "lm":
        log_probs = scorer.score(piece.steps).tolist()
        answer |= {"log_probs": log_probs, "top": top_of(model, last, TOP)}
    else:
        answer["logits"] = last.tolist()
    state = base64.b64encode(stream.save_state()).decode()
    return {**answer, "memory": memory_of(stream, DIGITS), "state": state}


def _pieces(model: Model, steps: int) -> Iterator[Piece]:
    if not model.takes_tokens:
        wave = np.zeros(steps)
        wave[: steps // 2] = np.sin(2 * np.pi / PERIOD * np.arange(steps // 2)).round(2) + 0.0
        for value in wave:
            yield Piece("", [f"{value:.2f}"], np.full((1, model.input_size), value, np.float32))
        return
    tokens = _tokens(model, steps)
    if model.tokenizer is None:
        for token in tokens[:, None]:
            yield Piece(f"{token[0]} ", [str(token[0])], token)
        return
    text = model.decode(tokens)
    for typed in text if model.tokenizer.startswith("char") else WORD.findall(f"{text} "):
        chunk = _encoded(model, typed)
        if chunk is None:  # the name of a token that no text has, such as <eos>
            return
        yield Piece(typed, texts_of(model, Step("feed", tokens=chunk)), chunk)


def _tokens(model: Model, steps: int) -> NDArray[np.int64]:
    """Of the text above; of a generated or random one if the dictionary does not have all of it."""
    text = _encoded(model, TEXT) if model.tokenizer else None
    if text is not None and model.decode(text) == TEXT:
        return text[:steps]
    if model.family == "lm":
        with model.create_stream() as stream:
            return stream.generate(steps, temperature=0.5, seed=1)
    return np.random.default_rng(1).integers(model.vocab_size, size=steps)


def _encoded(model: Model, text: str) -> NDArray[np.int64] | None:
    """The tokens of a text; None if it has none, or symbols that the dictionary does not have."""
    try:
        tokens = model.encode(text.replace(" ", "_") if model.tokenizer == "char_ptb" else text)
    except TsmError:
        return None
    return tokens if len(tokens) else None
