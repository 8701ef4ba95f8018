"""Turns tokens into text, which is returned as soon as it is final. The concatenated parts equal
tokenizer.decode of all tokens."""

from __future__ import annotations

from ..data import Tokenizer

HALF = "\ufffd"  # decoded from the bytes of an incomplete character
WINDOW = 64  # symbols of a line that are kept


class TextStream:
    """Call stream.add(symbol) for each symbol, then stream.close() for the rest; both return text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.line: list[str] = []  # symbols of the current line, or only its last ones
        self.given = ""  # the part of their text that was already returned

    def add(self, symbol: str) -> str:
        if symbol == self.tokenizer.end:
            part = self.close() + "\n"
            self.line, self.given = [], ""
            return part
        self.line.append(symbol)
        text = self.tokenizer.text(self.line)
        if text.endswith(HALF) or not text.startswith(self.given):
            return ""
        part, self.given = text[len(self.given) :], text
        if len(self.line) >= WINDOW:
            self._forget()
        return part

    def close(self) -> str:
        """The rest of the line, even if it ends in an incomplete character."""
        text = self.tokenizer.text(self.line)
        part, self.given = text[len(self.given) :], text
        return part

    def _forget(self) -> None:
        """Keeps only the last symbol, unless it is a byte of a longer character."""
        alone = self.tokenizer.text(self.line[-1:])
        if alone and HALF not in alone and self.given.endswith(alone):
            self.line, self.given = self.line[-1:], alone
