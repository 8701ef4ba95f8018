"""Tokens in, text out as soon as it cannot change: the parts joined are model.decode of all tokens."""

from __future__ import annotations

from collections.abc import Iterable

from .. import Model

HALF = "\ufffd"  # what the bytes of an unfinished character decode to
WINDOW = 64  # tokens after which the earlier ones are forgotten


class TextParts:
    """part = parts.add(tokens), again and again; then parts.close() for what was held back."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokens: list[int] = []
        self.given = ""  # of their text

    def add(self, tokens: Iterable[int]) -> str:
        self.tokens += tokens
        text = self.model.decode(self.tokens)
        if text.endswith(HALF) or not text.startswith(self.given):
            return ""
        part, self.given = text[len(self.given) :], text
        if len(self.tokens) > WINDOW:
            self._forget()
        return part

    def close(self) -> str:
        text = self.model.decode(self.tokens)
        part, self.given = text[len(self.given) :], text
        return part

    def _forget(self) -> None:
        """Keep the last token alone, if it is a text of its own (the byte of a character is not)."""
        alone = self.model.decode(self.tokens[-1:])
        if alone and HALF not in alone and self.given.endswith(alone):
            self.tokens, self.given = self.tokens[-1:], alone
