"""Log-probabilities of a whole text, with the likeliest alternatives to each token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ... import Model
from ..transport.limits import Limits
from .answers import log_softmax
from .engine import Engine
from .steps import Step
from .text import TextParts


@dataclass
class Scored:
    """For each token, its log-probability (None for the first) and the likeliest tokens with their
    log-probabilities."""

    tokens: list[int]
    log_probs: list[float | None] = field(default_factory=list)
    top: list[dict[int, float] | None] = field(default_factory=list)

    def shown(self, model: Model, start: int) -> dict[str, Any]:
        """The scores from token `start` on, in the form of OpenAI's completions."""
        parts = TextParts(model) if model.tokenizer else None
        texts = [parts.add([t]) if parts else str(t) for t in self.tokens]
        offsets = np.cumsum([0, *map(len, texts)]).tolist()
        names = [
            None if top is None else {_name(model, t): p for t, p in top.items()}
            for top in self.top
        ]
        return {
            "tokens": texts[start:],
            "token_logprobs": self.log_probs[start:],
            "top_logprobs": names[start:] if any(self.top) else None,
            "text_offset": offsets[start:-1],
        }


def _name(model: Model, token: int) -> str:
    return model.decode([token]) if model.tokenizer else str(token)


async def score(engine: Engine, tokens: list[int], top: int, user: str, limits: Limits) -> Scored:
    """Scores the tokens on a new stream, in chunks whose logits fit into memory."""
    found = Scored(tokens)
    key, size = f"~{secrets.token_hex(12)}", max(1, limits.numbers // engine.model.output_size)
    before: np.ndarray[Any, np.dtype[np.float64]] | None = None
    try:
        for start in range(0, len(tokens), size):
            chunk = np.array(tokens[start : start + size], np.int64)
            step = Step("feed", tokens=chunk, logits="each")
            done = await engine.run(key, step, start, user, limits.seconds)
            after = log_softmax(done.event.logits)
            for row, token in zip([before, *after[:-1]], chunk.tolist(), strict=True):
                found.log_probs.append(None if row is None else float(row[token]))
                found.top.append(None if row is None or not top else _best(row, top))
            before = after[-1]
    finally:
        await engine.drop(key)
    return found


def _best(row: np.ndarray[Any, np.dtype[np.float64]], count: int) -> dict[int, float]:
    best = np.argsort(-row, kind="stable")[:count].tolist()
    return {token: float(row[token]) for token in best}
