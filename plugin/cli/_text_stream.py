"""Tokens in, text out as soon as it is final: the concatenated parts equal tokenizer.decode of all tokens."""

from __future__ import annotations

from ..data import Tokenizer

HALF = "\ufffd"  # what the bytes of an unfinished character decode to
WINDOW = 64  # symbols after which the beginning of a line is forgotten


class TextStream:
    """part = stream.add(symbol), again and again; then stream.close() for what was held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.line: list[str] = []  # since the last end of line, or later
        self.given = ""  # of their text

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
        """The rest of the line, even if it is half a character."""
        text = self.tokenizer.text(self.line)
        part, self.given = text[len(self.given) :], text
        return part

    def _forget(self) -> None:
        """Keep the last symbol alone, if it is a text of its own (the byte of a character is not)."""
        alone = self.tokenizer.text(self.line[-1:])
        if alone and HALF not in alone and self.given.endswith(alone):
            self.line, self.given = self.line[-1:], alone
