"""Reads stdin in chunks for a stream, as soon as input arrives: text, tokens, or rows of values."""

from __future__ import annotations

import codecs
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from ..common.lazy import np
from ..data import Tokenizer, Vocab
from ._symbol_stream import symbol_stream

BLOCK = 1 << 16  # maximum bytes per read
WORD_OR_NEWLINE = re.compile(r"\n|\S+")


@dataclass
class Chunk:
    """x: int64 [T], or float32 [T,I]. symbols: the text of each token. dt: float32 [T], if given."""

    x: np.ndarray[Any, Any]
    symbols: list[str]
    dt: np.ndarray[Any, Any] | None = None


@dataclass
class Unknown:
    """Symbols that were read as <unk>, with their counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        shown = [repr(symbol) for symbol, _ in self.counts.most_common(5)]
        more = ", ..." if len(self.counts) > 5 else ""
        return f"{self.counts.total():,} read as <unk>, not in the dictionary: {', '.join(shown)}{more}"


def text_chunks(
    source: BinaryIO,
    tokenizer: Tokenizer,
    vocab: Vocab,
    size: int,
    unknown: Unknown,
    drop_last: bool,
) -> Iterator[Chunk]:
    """The tokens of a text. drop_last: ignore the newline at its end."""
    stream = symbol_stream(tokenizer)
    for part in _decoded(source, drop_last):
        yield from _tokens(stream.add(part), vocab, size, unknown)
    yield from _tokens(stream.close(), vocab, size, unknown)


def token_chunks(source: BinaryIO, vocab: Vocab | None, many: int, size: int) -> Iterator[Chunk]:
    """Token ids, separated by white space."""
    place = 0
    for words in _words(source):
        ids = []
        for word in words:
            place += 1
            if not word.isascii() or not word.isdecimal() or int(word) >= many:
                raise ValueError(
                    f"token {place} is {word!r}; accepted: numbers from 0 to {many - 1}"
                )
            ids.append(int(word))
        for start in range(0, len(ids), size):
            part = ids[start : start + size]
            names = [vocab[i] if vocab and i < len(vocab) else str(i) for i in part]
            yield Chunk(np.array(part, np.int64), names)


def value_chunks(source: BinaryIO, inputs: int, size: int, dt: str | None) -> Iterator[Chunk]:
    """Rows of `inputs` numbers. dt: "first" or "last" if the first or last number of a row is its time step.

    A row may take several lines, and a line may have several whole rows. A line with the numbers of a row, or
    more, must end a row.
    """
    held: list[float] = []
    width = inputs if dt is None else inputs + 1
    accepted = f"rows of {width}" + ("" if dt is None else f", {inputs} and dt")
    place, line, in_line = 0, 1, 0
    for words in _words(source, newlines=True):
        for word in words:
            if word == "\n":
                if in_line >= width and len(held) % width:
                    before = (len(held) - in_line) % width
                    after = f" after {before} of an incomplete row" if before else ""
                    raise ValueError(
                        f"line {line} has {in_line} numbers{after}; accepted: {accepted}"
                    )
                line, in_line = line + 1, 0
                continue
            place, in_line = place + 1, in_line + 1
            try:
                held.append(float(word))
            except ValueError:
                raise ValueError(
                    f"number {place} is {word!r}; accepted: numbers with white space between them"
                ) from None
        whole = len(held) // width * width
        rows = np.array(held[:whole], np.float32).reshape(-1, width)
        held = held[whole:]
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            names = [""] * len(part)
            if dt is None:
                yield Chunk(part, names)
            elif dt == "first":
                yield Chunk(part[:, 1:], names, part[:, 0])
            else:
                yield Chunk(part[:, :-1], names, part[:, -1])
    if held:
        raise ValueError(f"the input ends with {len(held)} numbers of a row; accepted: {accepted}")


def _tokens(symbols: list[str], vocab: Vocab, size: int, unknown: Unknown) -> Iterator[Chunk]:
    for start in range(0, len(symbols), size):
        part = symbols[start : start + size]
        unknown.counts.update(symbol for symbol in part if symbol not in vocab)
        yield Chunk(np.array(vocab.ids(part), np.int64), part)  # raises if there is no <unk>


def _blocks(source: BinaryIO) -> Iterator[bytes]:
    """Yields the available bytes; waits only if there are none."""
    read = getattr(source, "read1", source.read)
    while block := read(BLOCK):
        yield block


def _decoded(source: BinaryIO, drop_last: bool) -> Iterator[str]:
    """Decodes UTF-8; a character may be split over two reads."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    done, held = 0, ""
    for block in itertools.chain(_blocks(source), [b""]):  # b"": the input has ended
        waiting = len(decoder.getstate()[0])
        try:
            text = held + decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            where = done - waiting + error.start
            raise ValueError(f"the input is not UTF-8 at byte {where} ({error.reason})") from error
        done += len(block)
        held = "\n" if drop_last and text.endswith("\n") else ""
        yield text[: len(text) - len(held)]


def _words(source: BinaryIO, newlines: bool = False) -> Iterable[list[str]]:
    """The words of each read. newlines: whether a newline is also a word. A last word that may be incomplete is
    held back."""
    held, split = "", (WORD_OR_NEWLINE.findall if newlines else str.split)
    for text in _decoded(source, drop_last=False):
        text = held + text
        words = split(text)
        held = words.pop() if words and not text[-1].isspace() else ""
        yield words
    yield [held] if held else []
