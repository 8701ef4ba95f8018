r"""Vocab: id <-> symbol, with the training counts, stored like fairseq's dict.txt: one line `symbol count` per
symbol, line number = id.

The symbols are exactly those of the training data, most frequent first, ties by code point. No special symbols
are added, so PTB has 10,000 types with its <eos>, WikiText-2 33,278, character PTB 50, text8 27. The only
exception is `<unk>`. It is appended as the last id if --threshold or --nwords drops a symbol, or if another
split has a symbol that the training split does not have. Data with its own <unk>, such as PTB, keeps that one.
`<pad>` is never in the dictionary: a classifier's batches pad with the id len(vocab), one past the last symbol
(see `pad_id`).

Escapes in dict.txt, so that every line is one symbol: `\\` backslash, `\s` space, `\n`, `\t`,
`\r`, and `\u{hex}` for any other white space or control character. A backslash always starts an
escape.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..common.atomic import write_bytes
from ..common.lazy import np

EOS = "<eos>"
UNK = "<unk>"
DICT = "dict.txt"
MAX_SYMBOLS = 2**31 - 2  # ids fit into int32, with room for the padding id
MAX_COUNT = 2**63 - 1
_ESCAPES = {"\\": "\\\\", " ": "\\s", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_UNESCAPES = {v: k for k, v in _ESCAPES.items()}
_ESCAPE = re.compile(r"\\(?:u\{[0-9a-f]{1,6}\}|.?)", re.DOTALL)


class Vocab:
    """An immutable list of distinct symbols with their training counts."""

    def __init__(self, symbols: Sequence[str], counts: Sequence[int]) -> None:
        if len(symbols) != len(counts):
            raise ValueError(f"dictionary: {len(symbols)} symbols but {len(counts)} counts")
        if not 0 < len(symbols) <= MAX_SYMBOLS:
            raise ValueError(f"dictionary: {len(symbols)} symbols; accepted: 1 to {MAX_SYMBOLS:,}")
        self.symbols = tuple(symbols)
        self._ids: dict[str, int] = {}
        for i, (symbol, count) in enumerate(zip(self.symbols, counts, strict=True)):
            _check_symbol(symbol, count)
            if self._ids.setdefault(symbol, i) != i:
                raise ValueError(
                    f"dictionary: symbol {symbol!r} occurs twice, as ids {self._ids[symbol]} and "
                    f"{i}"
                )
        self.counts = np.array(counts, dtype=np.int64)
        self.counts.flags.writeable = False

    @classmethod
    def build(
        cls,
        counts: Mapping[str, int],
        *,
        threshold: int = 0,
        nwords: int = 0,
        keep: Iterable[str] = (EOS,),
    ) -> Vocab:
        """Symbols with count >= threshold, at most nwords including <unk> (0: no limit).

        `keep` and <unk> always stay. Dropped symbols count as <unk>.
        """
        if threshold < 0:
            raise ValueError(f"threshold is {threshold}; accepted: 0 (keep all) or more")
        if nwords < 0 or nwords == 1:
            raise ValueError(f"nwords is {nwords}; accepted: 0 (no limit) or at least 2")
        protected = {s for s in (*keep, UNK) if s in counts}
        order = sorted(counts, key=lambda s: (-counts[s], s))
        kept = [s for s in order if counts[s] >= threshold or s in protected]
        if nwords and len(kept) + (len(kept) < len(order) and UNK not in counts) > nwords:
            room = nwords - len(protected) - (UNK not in protected)
            if room < 0:
                raise ValueError(
                    f"nwords is {nwords}; {', '.join(sorted(protected))} and <unk> alone need more"
                )
            free = [s for s in kept if s not in protected][:room]
            chosen = protected.union(free)
            kept = [s for s in kept if s in chosen]
        table = {s: counts[s] for s in kept}
        if len(kept) < len(order):
            dropped = sum(counts.values()) - sum(table.values())
            if UNK not in table:
                return cls([*kept, UNK], [*table.values(), dropped])
            table[UNK] += dropped
            kept.sort(key=lambda s: (-table[s], s))
        return cls(kept, [table[s] for s in kept])

    def with_unk(self) -> Vocab:
        """This dictionary with <unk> (count 0) appended, or itself if it has one."""
        if UNK in self:
            return self
        return Vocab([*self.symbols, UNK], [*self.counts.tolist(), 0])

    def __len__(self) -> int:
        return len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ids

    def __getitem__(self, i: int) -> str:
        if not 0 <= i < len(self.symbols):
            raise ValueError(
                f"token id {i} is not in the dictionary; accepted: 0 to {len(self) - 1}"
            )
        return self.symbols[i]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocab) and self.dumps() == other.dumps()

    __hash__ = None  # type: ignore[assignment]

    @property
    def unk(self) -> int | None:
        """Id of <unk>, if there is one."""
        return self._ids.get(UNK)

    @property
    def eos(self) -> int | None:
        """Id of <eos>, else of the newline character, else None."""
        return self._ids.get(EOS, self._ids.get("\n"))

    @property
    def start(self) -> int:
        """The token for an empty text: an end of line, else a space, else the most frequent symbol."""
        if self.eos is not None:
            return self.eos
        return self.id(" ") if " " in self else int(self.counts.argmax())

    @property
    def pad_id(self) -> int:
        """len(vocab), the padding id of classification batches. Embeddings have one more row for it."""
        return len(self)

    def id(self, symbol: str) -> int:
        """The id of a symbol. An unknown one becomes <unk>, or is an error if there is none."""
        i = self._ids.get(symbol, self.unk)
        if i is None:
            near = difflib.get_close_matches(symbol, self.symbols, n=3)
            hint = f"; close: {', '.join(map(repr, near))}" if near else ""
            raise ValueError(
                f"symbol {symbol!r} is not in the dictionary of {len(self)} symbols, which has no "
                f"<unk>{hint}"
            )
        return i

    def ids(self, symbols: Iterable[str]) -> list[int]:
        """id() of each symbol."""
        return [self.id(s) for s in symbols]

    def lookup(self, symbols: Iterable[str], missing: int) -> list[int]:
        """Ids, with `missing` for symbols that are not in the dictionary."""
        get = self._ids.get
        return [get(s, missing) for s in symbols]

    def dumps(self) -> bytes:
        """The bytes of dict.txt."""
        return "".join(
            f"{escape(s)} {c}\n" for s, c in zip(self.symbols, self.counts.tolist(), strict=True)
        ).encode()

    @classmethod
    def loads(cls, data: bytes, name: str = DICT) -> Vocab:
        """Parse dict.txt; every error names the line."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise ValueError(f"{name}: not UTF-8 at byte {e.start}") from e
        if not text.endswith("\n"):
            raise ValueError(f"{name}: empty or cut short (the last line has no newline)")
        symbols, counts = [], []
        for number, line in enumerate(text[:-1].split("\n"), 1):
            symbol, space, count = line.rpartition(" ")
            if (
                not space
                or not symbol
                or not count.isascii()
                or not count.isdigit()
                or len(count) > 19
            ):
                raise ValueError(f"{name}, line {number}: {line[:80]!r}; accepted: `symbol count`")
            try:
                symbols.append(unescape(symbol))
            except ValueError as e:
                raise ValueError(f"{name}, line {number}: {e}") from None
            counts.append(int(count))
        try:
            return cls(symbols, counts)
        except ValueError as e:
            raise ValueError(f"{name}: {e}") from None

    def save(self, path: Path) -> None:
        """Write dict.txt, atomically."""
        write_bytes(Path(path), self.dumps())

    @classmethod
    def load(cls, path: Path) -> Vocab:
        """Read dict.txt."""
        return cls.loads(Path(path).read_bytes(), str(path))

    def fingerprint(self) -> str:
        """sha256 over the symbols in order (without counts). If two dictionaries have the same hash, their ids
        have the same meaning."""
        return hashlib.sha256("\n".join(map(escape, self.symbols)).encode()).hexdigest()


def escape(symbol: str) -> str:
    """The symbol as written in dict.txt."""
    return "".join(_escape_char(c) for c in symbol)


def unescape(text: str) -> str:
    """The symbol that a text in dict.txt stands for."""
    return _ESCAPE.sub(_unescape_match, text)


def _escape_char(c: str) -> str:
    if c in _ESCAPES:
        return _ESCAPES[c]
    return f"\\u{{{ord(c):x}}}" if c.isspace() or unicodedata.category(c) == "Cc" else c


def _unescape_match(match: re.Match[str]) -> str:
    text = match.group()
    if text in _UNESCAPES:
        return _UNESCAPES[text]
    code = int(text[3:-1], 16) if text.startswith("\\u{") else -1
    if not 0 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"escape {text!r} is not one of \\\\ \\s \\n \\t \\r \\u{{hex}}")
    return chr(code)


def _check_symbol(symbol: str, count: int) -> None:
    if not symbol:
        raise ValueError("dictionary: an empty symbol; accepted: at least one character")
    if not 0 <= count <= MAX_COUNT:
        raise ValueError(
            f"dictionary: symbol {symbol!r} has count {count}; accepted: 0 to 2**63 - 1"
        )
    if not symbol.isascii() and any(0xD800 <= ord(c) <= 0xDFFF for c in symbol):
        raise ValueError(f"dictionary: symbol {symbol!r} is not valid Unicode")
