"""A binarized split: PREFIX.bin holds the token ids one after another, PREFIX.idx describes them. Both files
are little-endian.

PREFIX.idx = header (64 bytes) | offsets int64 [items + 1] | labels int32 [labels]

    bytes  0..7   magic "TSMTOKEN"         bytes 32..39  items N
    bytes  8..11  version (1)              bytes 40..47  labels (0 or N)
    bytes 12..15  dtype: 2 uint16, 4 int32 bytes 48..55  vocabulary size V
    bytes 16..23  tokens                   bytes 56..59  crc32 of PREFIX.bin
    bytes 24..31  crc32 of what follows    bytes 60..63  crc32 of bytes 0..59

Item i (a line, or a review) is tokens[offsets[i]:offsets[i + 1]]. uint16 needs V <= 65,536.
Tokens and offsets are read on demand (file_array.py), so opening a split only needs memory for the labels.
Every size is checked against the files first.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from ..common.lazy import np
from .file_array import FileArray
from .vocab import MAX_SYMBOLS

MAGIC = b"TSMTOKEN"
VERSION = 1
HEADER = struct.Struct("<8sIIQQQQQI")  # without its own crc32
HEADER_SIZE = HEADER.size + 4
DTYPES = {2: "<u2", 4: "<i4"}
LIMIT = 2**60  # largest count accepted in a header


def dtype_code(vocab_size: int) -> int:
    """2 (uint16) if every id fits, else 4 (int32)."""
    return 2 if vocab_size <= 2**16 else 4


def paths(prefix: Path) -> tuple[Path, Path]:
    """PREFIX.bin and PREFIX.idx."""
    return prefix.with_name(prefix.name + ".bin"), prefix.with_name(prefix.name + ".idx")


@dataclass(frozen=True)
class Header:
    """The first 64 bytes of PREFIX.idx."""

    code: int
    tokens: int
    items: int
    labels: int
    vocab_size: int
    crc: int
    idx_crc: int

    def pack(self) -> bytes:
        """The bytes."""
        body = HEADER.pack(
            MAGIC,
            VERSION,
            self.code,
            self.tokens,
            self.idx_crc,
            self.items,
            self.labels,
            self.vocab_size,
            self.crc,
        )
        return body + struct.pack("<I", zlib.crc32(body))

    @classmethod
    def unpack(cls, raw: bytes, path: Path) -> Header:
        """Parse and check the bytes."""
        if len(raw) != HEADER_SIZE or not raw.startswith(MAGIC):
            raise ValueError(f"{path}: not an index of tsm-preprocess, or cut short")
        _, version, code, tokens, idx_crc, items, labels, vocab_size, crc = HEADER.unpack(
            raw[: HEADER.size]
        )
        if zlib.crc32(raw[: HEADER.size]) != struct.unpack("<I", raw[HEADER.size :])[0]:
            raise ValueError(f"{path}: the header is damaged (its checksum differs)")
        if version != VERSION:
            raise ValueError(f"{path}: version is {version}; accepted: {VERSION}")
        if not 0 < vocab_size <= MAX_SYMBOLS or code not in DTYPES or code < dtype_code(vocab_size):
            raise ValueError(
                f"{path}: dtype {code} with a vocabulary of {vocab_size}; "
                "accepted: 2 to 65,536, or 4"
            )
        if max(tokens, items) > LIMIT or labels not in (0, items):
            raise ValueError(
                f"{path}: {tokens} tokens, {items} items and {labels} labels are inconsistent"
            )
        return cls(code, tokens, items, labels, vocab_size, crc, idx_crc)


class Corpus:
    """Read access to a split. len() is the number of tokens; read(a, b) gives them as int64."""

    def __init__(self, prefix: Path | str) -> None:
        self.bin_path, self.idx_path = paths(Path(prefix))
        for path in (self.bin_path, self.idx_path):
            if not path.is_file():
                raise FileNotFoundError(f"{path} is not there; tsm-preprocess writes it")
        with open(self.idx_path, "rb") as f:
            self.header = Header.unpack(f.read(HEADER_SIZE), self.idx_path)
        h = self.header
        _check_size(self.idx_path, HEADER_SIZE + 8 * (h.items + 1) + 4 * h.labels)
        _check_size(self.bin_path, h.tokens * h.code)
        self.vocab_size = h.vocab_size
        self.tokens = FileArray(self.bin_path, DTYPES[h.code], 0, h.tokens)
        self.offsets = FileArray(self.idx_path, "<i8", HEADER_SIZE, h.items + 1)
        after = HEADER_SIZE + 8 * (h.items + 1)
        self.labels = FileArray(self.idx_path, "<i4", after, h.labels)[:]
        if self.offsets[0] != 0 or self.offsets[-1] != h.tokens:
            raise ValueError(
                f"{self.idx_path}: offsets run from {self.offsets[0]} to {self.offsets[-1]}, not 0 "
                f"to {h.tokens}"
            )

    def __len__(self) -> int:
        return self.header.tokens

    @property
    def items(self) -> int:
        """How many lines or documents there are."""
        return self.header.items

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop-1 as int64; an id outside the vocabulary is an error."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"tokens {start}:{stop} asked for; {self.bin_path.name} has 0:{len(self)}"
            )
        out = self.tokens[start:stop].astype(np.int64)
        if out.size and not (out.min() >= 0 and out.max() < self.vocab_size):
            at = start + int(np.argmax((out < 0) | (out >= self.vocab_size)))
            raise ValueError(
                f"{self.bin_path}: token {at} is {int(self.tokens[at])}; "
                f"accepted: 0 to {self.vocab_size - 1}"
            )
        return out

    def bounds(self, i: int) -> tuple[int, int]:
        """Where item i starts and stops."""
        if not 0 <= i < self.items:
            raise ValueError(f"item {i} asked for; {self.idx_path.name} has 0 to {self.items - 1}")
        start, stop = int(self.offsets[i]), int(self.offsets[i + 1])
        if not 0 <= start <= stop <= len(self):
            raise ValueError(
                f"{self.idx_path}: item {i} spans {start}:{stop} of {len(self)} tokens"
            )
        return start, stop

    def item(self, i: int, limit: int | None = None) -> np.ndarray:
        """The first `limit` tokens of item i."""
        start, stop = self.bounds(i)
        return self.read(start, stop if limit is None else min(stop, start + limit))

    def lengths(self) -> np.ndarray:
        """The length of every item."""
        out = np.diff(self.offsets)
        if out.size and out.min() < 0:
            raise ValueError(
                f"{self.idx_path}: item {int(np.argmax(out < 0))} has a negative length"
            )
        return out

    def verify(self, block: int = 1 << 22) -> None:
        """Reads everything once to check both checksums, the range of the ids and the order of the offsets."""
        if _crc(self.tokens, block) != self.header.crc:
            raise ValueError(f"{self.bin_path}: damaged (its checksum differs)")
        if _crc(self.labels, block, _crc(self.offsets, block)) != self.header.idx_crc:
            raise ValueError(f"{self.idx_path}: damaged (its checksum differs)")
        for start in range(0, len(self), block):
            self.read(start, min(start + block, len(self)))
        for start in range(0, self.items, block):
            if (np.diff(self.offsets[start : start + block + 1]) < 0).any():
                raise ValueError(f"{self.idx_path}: offsets decrease somewhere after item {start}")


class TokenArray:
    """A corpus in memory: the same read(), len() and vocab_size as Corpus."""

    def __init__(self, tokens: np.ndarray, vocab_size: int) -> None:
        self.tokens = np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise ValueError(
                f"tokens have shape {self.tokens.shape} and dtype {self.tokens.dtype}; "
                "accepted: 1-d integers"
            )
        if self.tokens.size and not (self.tokens.min() >= 0 and self.tokens.max() < vocab_size):
            raise ValueError(
                f"tokens run from {self.tokens.min()} to {self.tokens.max()}; "
                f"accepted: 0 to {vocab_size - 1}"
            )
        self.vocab_size = vocab_size

    def __len__(self) -> int:
        return len(self.tokens)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop-1 as int64."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"tokens {start}:{stop} asked for; there are 0:{len(self)}")
        return self.tokens[start:stop].astype(np.int64)


def _crc(array: np.ndarray | FileArray, block: int, crc: int = 0) -> int:
    for start in range(0, len(array), block):
        crc = zlib.crc32(array[start : start + block].tobytes(), crc)
    return crc


def _check_size(path: Path, expected: int) -> None:
    size = path.stat().st_size
    if size != expected:
        raise ValueError(
            f"{path}: {size:,} bytes where its index promises {expected:,}; "
            "it is damaged or cut short"
        )
