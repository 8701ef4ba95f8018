"""Text -> symbols and back. A tokenizer reads one piece at a time: a line without its newline, or
a block of plain text.


| kind          | piece | symbols of a piece                              | decode gives         |
|---------------|-------|-------------------------------------------------|----------------------|
| word          | line  | split at white space, then <eos>                | words, single spaces |
| char          | block | every character as it is, newline and space too | the text, exactly    |
| char_ptb      | line  | characters of words joined by `_`, then newline | words, single spaces |
| review        | line  | lower case words, clitics, marks (IMDB); no end | tokens and spaces    |
| sentencepiece | line  | pieces, then <eos> (subword.py)                 | the line, exactly    |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

from ..common.lazy import np
from .vocab import EOS, Vocab

Encoded: TypeAlias = "tuple[np.ndarray, np.ndarray]"
"""Concatenated ids of all pieces (int32), and the length of each piece (int64)."""
_REVIEW = re.compile(
    r"""[^\W\d_]+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|[^\W_]+|[.,!?;:()\"$%&*/-]""",
)


class Tokenizer:
    """The interface, and the default implementation: symbols(), then a dictionary lookup for each."""

    kind = ""
    unit = "line"  # the kind of piece: "line" or "block"
    end: str | None = None  # the symbol that ends a line

    def symbols(self, text: str) -> list[str]:
        """Splits a text into symbols, without the end symbol."""
        raise NotImplementedError

    def text(self, symbols: Sequence[str]) -> str:
        """The text of symbols. The end symbol becomes a newline."""
        raise NotImplementedError

    def is_empty(self, text: str) -> bool:
        """Whether the text has no symbol other than the end."""
        return not text or text.isspace()

    def line_symbols(self, line: str) -> list[str]:
        """The symbols of a whole line, with the end symbol."""
        return self.symbols(line) if self.end is None else [*self.symbols(line), self.end]

    def open_symbols(self, text: str) -> list[str]:
        """The symbols of a text that may continue: whole lines with their end symbols, then the rest
        without."""
        if self.end is None:
            return self.symbols(text)
        *whole, last = text.split("\n")
        found = [symbol for line in whole for symbol in self.line_symbols(line)]
        return [*found, *self.symbols(last)]

    def encode(self, text: str, vocab: Vocab) -> list[int]:
        """Ids of a text without an end symbol (a prompt). An unknown symbol becomes <unk>, or is an error."""
        return vocab.ids(self.symbols(text))

    def encode_line(self, line: str, vocab: Vocab) -> list[int]:
        """Ids of a whole line."""
        return vocab.ids(self.line_symbols(line))

    def decode(self, ids: Iterable[int], vocab: Vocab) -> str:
        """The text of ids."""
        return self.text([vocab[int(i)] for i in ids])

    def count(self, pieces: Sequence[str]) -> Counter[str]:
        """How often each symbol occurs."""
        total: Counter[str] = Counter()
        for piece in pieces:
            total.update(self.line_symbols(piece))
        return total

    def encode_pieces(self, pieces: Sequence[str], vocab: Vocab, missing: int) -> Encoded:
        """Ids of many pieces; a symbol that is not in the dictionary becomes `missing`."""
        rows = [vocab.lookup(self.line_symbols(p), missing) for p in pieces]
        lengths = np.array([len(r) for r in rows], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        return ids, lengths

    def words(self, pieces: Sequence[str]) -> int | None:
        """The number of words plus one end per line, the divisor of per-word perplexity (None: not defined)."""
        return sum(len(p.split()) + 1 for p in pieces) if self.end is not None else None

    def config(self) -> dict[str, Any]:
        """The tokenizer's entry in meta.json."""
        return {"kind": self.kind}


class WordTokenizer(Tokenizer):
    """w1 w2 ... wn <eos>: words separated by white space, one end per line (an empty line: <eos>)."""

    kind = "word"
    end = EOS

    def symbols(self, text: str) -> list[str]:
        return text.split()

    def text(self, symbols: Sequence[str]) -> str:
        lines = " ".join("\n" if s == EOS else s for s in symbols)
        return lines.replace(" \n", "\n").replace("\n ", "\n")


class CharTokenizer(Tokenizer):
    """Every character is a symbol; decode(encode(text)) == text. It reads blocks, so lines may have any
    length."""

    kind = "char"
    unit = "block"

    def symbols(self, text: str) -> list[str]:
        return list(text)

    def text(self, symbols: Sequence[str]) -> str:
        return "".join(symbols)

    def _plain(self, piece: str) -> str:
        return piece

    def count(self, pieces: Sequence[str]) -> Counter[str]:
        counts = np.bincount(_code_points("".join(map(self._plain, pieces))))
        return Counter({chr(c): int(counts[c]) for c in np.flatnonzero(counts).tolist()})

    def encode_pieces(self, pieces: Sequence[str], vocab: Vocab, missing: int) -> Encoded:
        texts = [self._plain(p) for p in pieces]
        codes = _code_points("".join(texts))
        table = np.full(int(codes.max(initial=0)) + 1, missing, dtype=np.int32)
        for i, symbol in enumerate(vocab.symbols):
            if len(symbol) == 1 and ord(symbol) < len(table):
                table[ord(symbol)] = i
        return table[codes], np.array([len(t) for t in texts], dtype=np.int64)


class PtbCharTokenizer(CharTokenizer):
    """PTB's characters: letters of the words, `_` for a space between two words, then newline."""

    kind = "char_ptb"
    unit = "line"
    end = "\n"

    def symbols(self, text: str) -> list[str]:
        return list("_".join(text.split()))

    def text(self, symbols: Sequence[str]) -> str:
        return "".join(symbols).replace("_", " ")

    def _plain(self, piece: str) -> str:
        return "_".join(piece.split()) + "\n"


class ReviewTokenizer(Tokenizer):
    """IMDB: converts to lower case, replaces `<br />` with a space, then splits into words, n't, 's 'm 'd 're
    've 'll, and punctuation marks.

    Marks: . , ! ? ; : ( ) " $ % & * / -   The GloVe matrix for IMDB is made with these tokens.
    symbols(text(symbols)) == symbols.
    """

    kind = "review"

    def symbols(self, text: str) -> list[str]:
        return _REVIEW.findall(self._clean(text))

    def is_empty(self, text: str) -> bool:
        """Whether the text has no token at all."""
        return _REVIEW.search(self._clean(text)) is None

    @staticmethod
    def _clean(text: str) -> str:
        return text.lower().replace("<br />", " ")

    def text(self, symbols: Sequence[str]) -> str:
        return " ".join(symbols)


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)


TOKENIZERS: dict[str, type[Tokenizer]] = {
    t.kind: t for t in (WordTokenizer, CharTokenizer, PtbCharTokenizer, ReviewTokenizer)
}


def plain_tokenizer(kind: str) -> Tokenizer:
    """The tokenizer of that kind, which must not need a model file."""
    if kind not in TOKENIZERS:
        raise ValueError(f"tokenizer is {kind!r}; accepted: {', '.join(TOKENIZERS)}, sentencepiece")
    return TOKENIZERS[kind]()
