"""Decodes a stream of tokens in parts. Text is returned as soon as further tokens cannot change it.

Joined, the parts are what model.decode() returns for all tokens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ... import Model
from .engine import Emit

HALF = "\ufffd"  # what the bytes of an incomplete character decode to
MOST_HALVES = 3  # of a character that is not complete yet
WINDOW, KEPT = 64, 4  # tokens to hold before all but the last few are dropped


class TextParts:
    """Call part = parts.add(tokens) repeatedly, then parts.close() for the text that was held back."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokens: list[int] = []
        self.returned = ""  # the part of the tokens' text that was already returned

    def add(self, tokens: Iterable[int]) -> str:
        self.tokens += tokens
        text = self.model.decode(self.tokens)
        end = max(len(text.rstrip(HALF)), len(text) - MOST_HALVES)
        if end < len(self.returned) or not text.startswith(self.returned):
            return ""
        part, self.returned = text[len(self.returned) : end], text[:end]
        if len(self.tokens) > WINDOW:
            self._forget(text)
        return part

    def close(self) -> str:
        text = self.model.decode(self.tokens)
        part, self.returned = text[len(self.returned) :], text
        return part

    def _forget(self, text: str) -> None:
        """Keep only the last tokens, if they decode by themselves (a rest of a character does not)."""
        alone = self.model.decode(self.tokens[-KEPT:])
        held = len(text) - len(self.returned)
        if len(alone) > held and text.endswith(alone):
            self.tokens, self.returned = self.tokens[-KEPT:], alone[: len(alone) - held]


class Telling:
    """`send` is called with each {"tokens": [...], "text": "..."}; "text" only if the model has a
    dictionary."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
        self.send = send
        self.begun = False  # what was sent cannot be taken back
        self.parts: TextParts | None = None

    def of(self, model: Model) -> Emit:
        async def emit(tokens: list[int]) -> None:
            if not self.begun and model.tokenizer:
                self.parts = TextParts(model)
            self.begun = True
            text = {"text": self.parts.add(tokens)} if self.parts else {}
            await self.send({"tokens": tokens, **text})

        return emit
