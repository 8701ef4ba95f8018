"""Time in an ONNX graph: T, dt, and which steps of a row are valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from onnx import TensorProto

from .nodes import Graph
from .products import spread


@dataclass
class Clock:
    """What all layers share: T of x, dt [N,T] and live [N,T] (bool), None if not used."""

    graph: Graph
    x: str
    chunk_size: int | None = None
    dt: str | None = None
    live: str | None = None
    lengths: str | None = None  # int64 [N]

    def column(self, name: str) -> str:
        """[N,T] -> [N,T,1]"""
        axis = self.graph.tensor("axis_2", np.array([2], np.int64))
        return self.graph.once("Unsqueeze", [name, axis], f"{name}_column")

    def column_time_first(self, name: str) -> str:
        """[N,T] -> [T,N,1]: a step then sees a column."""
        transposed = self.graph.once("Transpose", [name], f"{name}_time_first", perm=[1, 0])
        return self.column(transposed)

    @cached_property
    def steps(self) -> str:
        """T as a scalar."""
        size = self.graph.once("Shape", [self.x], f"{self.x}_steps", start=1, end=2)
        axis = self.graph.tensor("axis_0", np.array([0], np.int64))
        return self.graph.once("Squeeze", [size, axis], "steps")

    @cached_property
    def pieces(self) -> list[tuple[str | None, str | None]]:
        """Returns (dt, live), each [N,1], for each step of an unrolled graph."""
        count = self.chunk_size or 0
        cut = [
            [None] * count if name is None else spread(self.graph, name, f"{name}_at", [1] * count)
            for name in (self.dt, self.live)
        ]
        return list(zip(*cut, strict=True))


def make_clock(graph: Graph, inputs: Sequence[str], chunk_size: int | None) -> Clock:
    """dt and lengths, if the graph has them, and `live`, computed from the lengths."""
    clock = Clock(graph, "x", chunk_size, dt="dt" if "dt" in inputs else None)
    if "lengths" not in inputs:
        return clock
    clock.lengths = "lengths"
    zero = graph.tensor("zero_steps", np.array(0, np.int64))
    one = graph.tensor("one_step", np.array(1, np.int64))
    column = graph.tensor("axis_1", np.array([1], np.int64))
    numbers = graph.add("Range", [zero, clock.steps, one], "step_numbers")
    until = graph.add("Unsqueeze", [clock.lengths, column], "lengths_column")
    clock.live = graph.add("Less", [numbers, until], "live")
    graph.declare(clock.live, TensorProto.BOOL, ["N", chunk_size or "T"])
    return clock
