"""Log-probabilities of a text, with the likeliest alternatives to each token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import Model
from ..transport.limits import Limits
from ..transport.off_loop import off_loop
from .answers import log_softmax
from .engine import Engine
from .steps import Step
from .text import TextParts


@dataclass
class Scored:
    """For each token from `start` on, its log-probability (None for a text's first) and the likeliest tokens
    with their log-probabilities."""

    tokens: list[int]
    start: int
    log_probs: list[float | None] = field(default_factory=list)
    top: list[dict[int, float] | None] = field(default_factory=list)

    def add(self, log_probs: NDArray[np.float64], top: int) -> None:
        """Scores the next tokens; each row follows from the tokens before."""
        at = self.start + len(self.top)
        for row, token in zip(log_probs, self.tokens[at:], strict=False):  # nothing after the last
            self.log_probs.append(float(row[token]))
            self.top.append(_best(row, top) if top else None)

    def shown(self, model: Model) -> dict[str, Any]:
        """In the form of OpenAI's completions."""
        parts = TextParts(model) if model.tokenizer else None
        before, tokens = self.tokens[: self.start], self.tokens[self.start :]
        unseen = parts.add(before) if parts else "".join(map(str, before))
        texts = [parts.add([t]) if parts else str(t) for t in tokens]

        @cache
        def name(before: int, token: int) -> str:
            """As in `texts`: with the space that separates words."""
            if not model.tokenizer:
                return str(token)
            alone, both = model.decode([before]), model.decode([before, token])
            return both[len(alone) :] if both.startswith(alone) else model.decode([token])

        names = [
            None if top is None else {name(self.tokens[i - 1], t): p for t, p in top.items()}
            for i, top in enumerate(self.top, self.start)
        ]
        return {
            "tokens": texts,
            "token_logprobs": self.log_probs,
            "top_logprobs": names if any(self.top) else None,
            "text_offset": np.cumsum([len(unseen), *map(len, texts)])[:-1].tolist(),
        }


async def score(
    engine: Engine, tokens: list[int], start: int, top: int, user: str, limits: Limits
) -> Scored:
    """Scores the tokens from `start` on, on a new stream, in chunks whose logits fit into memory."""
    scored, outputs = Scored(tokens, start), engine.model.output_size
    if tokens and not start:  # nothing comes before the first
        scored.log_probs.append(None)
        scored.top.append(None)
    key, at = f"~{secrets.token_hex(12)}", 0
    size = max(1, min(limits.tokens, limits.numbers // outputs))
    try:
        while at < len(tokens):
            unscored = at < start - 1  # its logits would belong to tokens before `start`
            end = min(at + limits.tokens, start - 1) if unscored else at + size
            chunk = np.array(tokens[at:end], np.int64)
            step = Step("feed", tokens=chunk, logits=None if unscored else "each")
            done = await engine.run(key, step, at, user, limits.seconds)
            if not unscored:
                logits = done.event.logits
                await off_loop(logits.size, lambda rows=logits: scored.add(log_softmax(rows), top))
            at += len(chunk)
    finally:
        await engine.drop(key)
    return scored


def _best(row: NDArray[np.float64], count: int) -> dict[int, float]:
    """The likeliest first; of equal ones, the one with the smallest number."""
    count = min(count, len(row))
    candidates = np.flatnonzero(row >= np.partition(row, -count)[-count])
    best = candidates[np.argsort(-row[candidates], kind="stable")][:count].tolist()
    return {token: float(row[token]) for token in best}
