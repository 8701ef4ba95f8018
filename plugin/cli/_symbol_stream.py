"""Text in parts, symbols out as soon as they are final: the inverse of `_text_stream.py`.

All symbols together are those of the whole text, however it is cut. A word is ready when white space follows
it, a piece of sentencepiece when its line has ended, a character at once.
"""

from __future__ import annotations

from ..data import Tokenizer


class SymbolStream:
    """symbols = stream.add(text), again and again; then stream.close() for what was held back."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.held = ""

    def add(self, text: str) -> list[str]:
        text = self.held + text
        cut = self.ready(text)
        text, self.held = text[:cut], text[cut:]
        return self.tokenizer.open_symbols(text)

    def close(self) -> list[str]:
        """The symbols of the rest, without an end of line, since no newline was read."""
        text, self.held = self.held, ""
        return self.tokenizer.open_symbols(text)

    def ready(self, text: str) -> int:
        """How many characters of it can be cut into symbols now."""
        return text.rfind("\n") + 1


class _Words(SymbolStream):
    """Up to the last white space."""

    def ready(self, text: str) -> int:
        at = len(text)
        while at and not text[at - 1].isspace():
            at -= 1
        return at


class _Review(_Words):
    """A tag of IMDB's texts, <br />, has a space inside."""

    def ready(self, text: str) -> int:
        at = super().ready(text)
        while at and text[:at].rstrip().lower().endswith("<br"):
            at = super().ready(text[:at].rstrip())
        return at


class _Characters(SymbolStream):
    def ready(self, text: str) -> int:
        return len(text)


class _PtbCharacters(SymbolStream):
    """A gap between words becomes `_`, once the next word of the line begins."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.inside = self.gap = False  # inside a line; after a gap in it

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
    """The stream of a tokenizer; of one that is not known here, line by line."""
    return _KINDS.get(tokenizer.kind, SymbolStream)(tokenizer)
