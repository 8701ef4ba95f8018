"""A .tsm file, run by the compiled runtime. It needs only numpy."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Tokenizer, Vocab
from ..data.ranges import Ranges
from ..data.reading import Reading
from ..data.roles import load_roles
from ..data.subword import SentencePieceTokenizer
from ..data.tokenizers import plain_tokenizer
from .model import Array, LoadedModel

STREAMS = 64  # streams processed at once


class TsmFileModel(LoadedModel):
    """`model` is a `tsm.runtime.Model`."""

    def __init__(self, path: Path, device: str, dtype: str, threads: int) -> None:
        from ...runtime import Model

        self.path, self.model = path, Model.load(path, device=device, dtype=dtype, threads=threads)
        self.family = self.model.family
        self.takes_dt, self.output_size = self.model.takes_dt, self.model.output_size
        self.labels = _listed(self.model.labels)
        self.targets = _listed(self.model.targets)
        self.columns = _listed(self.model.columns)
        ranges, where = self.model.asset("text.ranges"), f"{path}: text.ranges"
        self.ranges = Ranges.parse(ranges, where, self.input_size or 0) if ranges else None
        self.roles = load_roles(self.model.asset("text.roles") or b"", f"{path}: text.roles")
        reading = self.model.asset("text.reading")
        self.reading = Reading.parse(reading, f"{path}: text.reading") if reading else None

    @cached_property
    def vocab(self) -> Vocab:
        data = self.model.asset("text.dict")
        if data is None:
            raise ValueError(f"{self.path} has no dictionary: it was not trained on text")
        return Vocab.loads(data, f"{self.path}: text.dict")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        pieces = self.model.asset("text.sentencepiece")
        if pieces is not None:
            return SentencePieceTokenizer(pieces)
        return plain_tokenizer(self.model.tokenizer or "")

    @property
    def input_size(self) -> int | None:
        return None if self.model.takes_tokens else self.model.input_size

    def _generate(self, prompt: list[int], length: int, sampling: dict[str, Any]) -> list[int]:
        with self.model.create_stream() as stream:
            stream.feed(prompt, last_only=True)
            return stream.generate(length, **sampling).tolist()

    def _log_probs(self, before: int, tokens: list[int]) -> Array:
        with self.model.create_stream() as stream:
            stream.feed([before], last_only=True)
            return stream.score(tokens)

    def run(self, rows: list[Array], dts: list[Array] | None) -> list[Array]:
        found: list[Array] = []
        last = self.family == "classifier"
        if self.input_size is None:  # text is padded with the id after the dictionary's last
            padding = self.model.vocab_size - 1
            more = [(0, self._filled(len(row)) - len(row)) for row in rows]
            rows = [np.pad(r, m, constant_values=padding) for r, m in zip(rows, more, strict=True)]
            if dts is not None:
                dts = [np.pad(t, m, constant_values=1) for t, m in zip(dts, more, strict=True)]
        for start in range(0, len(rows), STREAMS):
            part = rows[start : start + STREAMS]
            times = None if dts is None else dts[start : start + STREAMS]
            streams = [self.model.create_stream() for _ in part]
            found += self.model.feed_many(streams, part, times, last_only=last)
        return found


def _listed(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
