"""A runner over the compiled runtime: a .tsm file, one Stream per row, each fed up to its length."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..common.runner import Array, State


class RuntimeRunner:
    """Streams are created from the given state and dropped after the call."""

    name = "tsm.runtime"
    chunk_size = None

    def __init__(self, path: Path, facts: Mapping[str, Any], dtype: str = "float32") -> None:
        from safetensors import safe_open

        from tsm.runtime import Model

        self.loaded = Model.load(path, dtype=dtype)  # first, since it refuses damaged files
        with safe_open(path, "numpy") as file:
            self.bias: Array = file.get_tensor("output.bias")
        states = json.loads(facts["states"])
        self.layers: list[list[str]] = [[] for _ in range(1 + max(s["layer"] for s in states))]
        for state in states:
            self.layers[state["layer"]].append(state["name"])
        self.stepwise = facts["family"] != "classifier"

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        rows, steps = x.shape[:2]
        ends = np.full(rows, steps) if lengths is None else lengths
        streams: list[Any] = [self.loaded.create_stream() for _ in range(rows)]
        for row, stream in enumerate(streams):
            if state is not None:
                stream.load_state(self.blob(state, row))
        chunks = [x[row, :end] for row, end in enumerate(ends)]
        times = None if dt is None else [dt[row, :end] for row, end in enumerate(ends)]
        found = self.loaded.feed_many(streams, chunks, times)
        states = [stream.state() for stream in streams]
        new: State = [
            {name: np.stack([one[name][index] for one in states]) for name in names}
            for index, names in enumerate(self.layers)
        ]
        if not self.stepwise:
            # A row that was not fed is read at its current state.
            last = [
                part[-1] if len(part) else stream.feed(chunk, last_only=True)
                for part, stream, chunk in zip(found, streams, chunks, strict=True)
            ]
            return np.stack(last), new
        # Past the end of a row, its logits are those of y = 0.
        logits = np.broadcast_to(self.bias, (rows, steps, len(self.bias))).copy()
        for row, part in enumerate(found):
            logits[row, : len(part)] = part
        return logits, new

    def blob(self, state: State, row: int) -> bytes:
        """The state of one row as the bytes of a saved stream (cpp/src/engine/state_blob.h)."""
        floats = np.concatenate(
            [state[i][name][row] for i, names in enumerate(self.layers) for name in names]
        ).astype("<f4")
        model = int(self.loaded.fingerprint, 16)
        head = struct.pack("<8sIIQqd", b"tsmstate", 1, len(floats), model, 0, 0.0)
        body = head + floats.tobytes()
        return body + struct.pack("<I", zlib.crc32(body))
