"""The answer to a step, as a JSON object."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import Model
from .steps import Step
from .text import TextParts

BLOCK = 1_024  # numbers that are written in one call, which other threads cannot interrupt
LETTERS = 32  # how much longer the text of a token takes than a number


def size_of(step: Step, event: Any) -> int:
    """How many numbers `answer_of` and `encoded` handle; see `off_loop`."""
    arrays = (event.logits, event.log_probs, event.tokens)
    size: int = sum(array.size for array in arrays if array is not None)
    return size * LETTERS if step.texts else size


def answer_of(model: Model, step: Step, event: Any) -> dict[str, Any]:
    """Builds the answer from the pool's last event of the step; `encoded` turns it into JSON."""
    answer: dict[str, Any] = {"position": event.position}
    if step.action == "score":
        answer["log_probs"] = event.log_probs
        if step.texts:
            answer["texts"] = texts_of(model, step)
    elif step.action == "generate":
        tokens = event.tokens.tolist()
        answer["tokens"] = tokens
        if model.tokenizer is not None:
            answer["text"] = model.decode(tokens)
        stopped = bool(tokens) and tokens[-1] in step.stops(model)
        answer["finish_reason"] = "stop" if stopped else "length"
    elif step.logits is not None:
        answer["logits"] = event.logits
    if step.version is not None:
        answer["version"] = model.checksum
    if step.top:
        last = event.logits if event.logits.ndim == 1 else event.logits[-1]
        answer["top"] = top_of(model, last, step.top)
    return answer


def encoded(answer: dict[str, Any]) -> bytes:
    """The answer as JSON."""
    parts = [f'"{name}": {_value(value)}' for name, value in answer.items()]
    return f"{{{', '.join(parts)}}}".encode()


def _value(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if not isinstance(value, np.ndarray):
        return json.dumps(value)
    if value.ndim > 1:
        return f"[{', '.join(map(_value, value))}]"
    blocks = (value[i : i + BLOCK] for i in range(0, len(value), BLOCK))
    return f"[{', '.join(map(_numbers, blocks))}]"


def _numbers(block: NDArray[np.float32]) -> str:
    """Nine digits identify a float32; printing it with all digits of a float64 takes ten times as long."""
    numbers: list[float] = block.tolist()
    shown = ", ".join(["%.9g"] * len(numbers)) % tuple(numbers)
    # Not a number, infinite, or a zero that would lose its sign.
    is_rare = "n" in shown or "-0," in shown or shown.endswith("-0")
    return json.dumps(numbers)[1:-1] if is_rare else shown


def texts_of(model: Model, step: Step) -> list[str]:
    """The text of each token of a step; its number if the model has no dictionary."""
    found = model.encode(step.text) if step.text is not None else step.tokens
    tokens: list[int] = [] if found is None else found.tolist()
    if model.tokenizer is None:
        return [str(token) for token in tokens]
    parts = TextParts(model)
    return [parts.add([token]) for token in tokens]


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return found


def top_of(model: Model, logits: NDArray[np.float32], count: int) -> list[dict[str, Any]]:
    """The likeliest next tokens or classes, likeliest first."""
    log_probs = log_softmax(logits)
    best = np.argsort(-log_probs, kind="stable")[:count].tolist()
    if model.family != "lm":
        names = model.labels
        return [
            {"class": i, **({"label": names[i]} if names else {}), "log_prob": float(log_probs[i])}
            for i in best
        ]
    if model.tokenizer is None:
        return [{"token": i, "log_prob": float(log_probs[i])} for i in best]
    return [{"token": i, "text": model.decode([i]), "log_prob": float(log_probs[i])} for i in best]
