"""A runner of the ONNX file in a Triton repository, called as Triton's sequence batcher calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .onnx_runners import OrtRunner
from .runner import Array, State


class TritonGraph(OrtRunner):
    """The ONNX file with its controls. A stream begins with START and states that are no numbers."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.name = "ONNX Runtime CPU, as Triton calls it"

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        self.starting = state is None
        return super().run(x, state, dt, lengths)

    def call(self, feeds: dict[str, Any]) -> list[Array]:
        ones = np.ones((len(feeds["x"]), 1), np.int32)
        if self.starting:
            feeds |= {one["input"]: feeds[one["input"]] * np.nan for one in self.layout}
        controls = {"START": ones * self.starting, "END": ones * 0, "READY": ones}
        return super().call({**feeds, **controls, "CORRID": ones.astype(np.uint64)})
