"""Turns parts of a text into symbols as soon as these are final: the inverse of `_text_stream.py`.

The result is the same however the text is cut into parts. A word is final when white space follows it, a
sentencepiece piece when its line has ended, a character immediately.
"""

from __future__ import annotations

from ..data import Tokenizer


class SymbolStream:
    """Call stream.add(text) for each part, then stream.close() for the rest; both return symbols."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.held = ""

    def add(self, text: str) -> list[str]:
        text = self.held + text
        cut = self.ready(text)
        text, self.held = text[:cut], text[cut:]
        return self.tokenizer.open_symbols(text)

    def close(self) -> list[str]:
        """The symbols of the remaining text, without an end-of-line symbol, since no newline was read."""
        text, self.held = self.held, ""
        return self.tokenizer.open_symbols(text)

    def ready(self, text: str) -> int:
        """How many characters of the text can be cut into symbols now."""
        return text.rfind("\n") + 1


class _Words(SymbolStream):
    """Text is final up to the last white space."""

    def ready(self, text: str) -> int:
        at = len(text)
        while at and not text[at - 1].isspace():
            at -= 1
        return at


class _Review(_Words):
    """Like `_Words`, but keeps the tag <br /> of IMDB's texts together."""

    def ready(self, text: str) -> int:
        at = super().ready(text)
        while at and text[:at].rstrip().lower().endswith("<br"):
            at = super().ready(text[:at].rstrip())
        return at


class _Characters(SymbolStream):
    def ready(self, text: str) -> int:
        return len(text)


class _PtbCharacters(SymbolStream):
    """White space between words becomes `_` when the next word of the line begins."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.inside = self.gap = False  # inside a line; after white space in that line

    def add(self, text: str) -> list[str]:
        found = []
        for character in text:
            if character == "\n":
                found.append("\n")
                self.inside = self.gap = False
            elif character.isspace():
                self.gap = self.inside
            else:
                found += ["_", character] if self.gap else [character]
                self.inside, self.gap = True, False
        return found


_KINDS: dict[str, type[SymbolStream]] = {
    "word": _Words,
    "review": _Review,
    "char": _Characters,
    "char_ptb": _PtbCharacters,
}


def symbol_stream(tokenizer: Tokenizer) -> SymbolStream:
    """The stream for a tokenizer; one of an unknown kind gets the text line by line."""
    return _KINDS.get(tokenizer.kind, SymbolStream)(tokenizer)
