"""Writes a split (format: corpus.py) from a stream of any length, in constant memory, all or nothing."""

from __future__ import annotations

import struct
import tempfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO

from ..common.atomic import atomic_file
from ..common.lazy import np
from .corpus import DTYPES, HEADER_SIZE, Header, dtype_code, paths

COPY = 1 << 20


class CorpusWriter:
    """with CorpusWriter(prefix, capacity) as w: w.write(ids); w.end_item(label); ...

    `capacity` bounds the ids and determines the dtype. `vocab_size` (by default the same) may be lowered before
    the end. PREFIX.idx appears last: a split with an index is complete.
    """

    def __init__(self, prefix: Path | str, capacity: int) -> None:
        self.bin_path, self.idx_path = paths(Path(prefix))
        self.code = dtype_code(capacity)
        self.capacity = self.vocab_size = capacity
        self.tokens = self.items = self.labels = 0
        self._crc = self._idx_crc = 0
        self._stack = ExitStack()

    def __enter__(self) -> CorpusWriter:
        with ExitStack() as stack:
            # Entered first, so renamed last.
            self._idx: IO[bytes] = stack.enter_context(atomic_file(self.idx_path))
            self._bin: IO[bytes] = stack.enter_context(atomic_file(self.bin_path))
            self._labels: IO[bytes] = stack.enter_context(
                tempfile.TemporaryFile(dir=self.idx_path.parent)
            )
            self._idx.write(bytes(HEADER_SIZE))
            self._write_idx(struct.pack("<q", 0))
            self._stack = stack.pop_all()
        return self

    def write(self, ids: np.ndarray) -> None:
        """Append ids to the current item."""
        ids = np.asarray(ids)
        if ids.size == 0:
            return
        if not (ids.min() >= 0 and ids.max() < self.capacity):
            raise ValueError(
                f"token ids run from {ids.min()} to {ids.max()}; accepted: 0 to {self.capacity - 1}"
            )
        raw = ids.astype(DTYPES[self.code]).tobytes()
        self._crc = zlib.crc32(raw, self._crc)
        self._bin.write(raw)
        self.tokens += ids.size

    def end_item(self, label: int | None = None) -> None:
        """Ends the current item. Either all items have a label, or none."""
        self._offsets(np.array([self.tokens]), None if label is None else np.array([label]))

    def write_items(
        self, ids: np.ndarray, lengths: np.ndarray, labels: np.ndarray | None = None
    ) -> None:
        """Appends many items: their concatenated ids, and the length (and label) of each."""
        start = self.tokens
        ends = start + np.cumsum(lengths)
        if np.min(lengths, initial=0) < 0 or int(np.sum(lengths)) != len(ids):
            raise ValueError(f"lengths sum to {int(np.sum(lengths))}; there are {len(ids)} ids")
        self.write(ids)
        self._offsets(ends, labels)

    def _offsets(self, ends: np.ndarray, labels: np.ndarray | None) -> None:
        if labels is not None:
            if len(labels) != len(ends):
                raise ValueError(f"{len(labels)} labels for {len(ends)} items")
            self._labels.write(np.asarray(labels).astype("<i4").tobytes())
            self.labels += len(labels)
        self._write_idx(ends.astype("<i8").tobytes())
        self.items += len(ends)

    def _write_idx(self, raw: bytes) -> None:
        self._idx_crc = zlib.crc32(raw, self._idx_crc)
        self._idx.write(raw)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stack.__exit__(kind, value, tb)
            return
        with self._stack:
            self._finish()

    def _finish(self) -> None:
        if self.labels not in (0, self.items):
            raise ValueError(
                f"{self.labels} labels for {self.items} items; accepted: one for each, or none"
            )
        if not 0 < self.vocab_size <= self.capacity:
            raise ValueError(
                f"vocab_size is {self.vocab_size}; accepted: 1 to the capacity, {self.capacity}"
            )
        self._labels.seek(0)
        while block := self._labels.read(COPY):
            self._write_idx(block)
        header = Header(
            code=self.code,
            tokens=self.tokens,
            items=self.items,
            labels=self.labels,
            vocab_size=self.vocab_size,
            crc=self._crc,
            idx_crc=self._idx_crc,
        )
        self._idx.seek(0)
        self._idx.write(header.pack())
