"""The non-saturating recurrent unit as ONNX nodes, after `Nru.advance` in plugin/cells/nru.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plugin.cells.nru import NORM
from ...plugin.cells.tape.rows import unit_norm_tape
from .nodes import Graph, tape_nodes
from .products import Products, spread

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent


class NruStep:
    """h = relu(norm(zx + U h' + V m'));  m = m' + mean over heads of alpha write - beta erase."""

    def __init__(self, graph: Graph, layer: Recurrent, products: Products, prefix: str) -> None:
        self.products, self.prefix = products, prefix
        self.options = layer.options
        self.side = math.isqrt(layer.options["memory_size"] * layer.options["heads"])
        for name in layer.weights:
            value: Any = getattr(layer, name).detach().float().cpu().numpy()
            if value.ndim == 2:
                products.enter(graph, prefix + name, value.T)
            else:
                graph.tensor(prefix + name, value)

    def nodes(
        self, graph: Graph, zx: str, states: Mapping[str, str], dt: str | None, prefix: str
    ) -> dict[str, str]:
        def linear(x: str, name: str, bias: bool = True) -> str:
            weight = f"{self.prefix}weight_{name}"
            product = self.products.multiply(graph, x, weight, f"{prefix}{name}_product")
            if not bias:
                return product
            return graph.add("Add", [product, f"{self.prefix}bias_{name}"], f"{prefix}{name}")

        both = graph.add("Add", [zx, linear(states["h"], "h", False)], f"{prefix}zh")
        z = graph.add("Add", [both, linear(states["m"], "m", False)], f"{prefix}z")
        if self.options["layer_norm"]:
            norm = [z, f"{self.prefix}norm_scale", f"{self.prefix}norm_shift"]
            z = graph.add("LayerNormalization", norm, f"{prefix}normed", axis=-1, epsilon=1e-5)
        h = graph.add("Relu", [z], f"{prefix}h_new")
        seen = graph.add("Concat", [h, states["m"]], f"{prefix}seen", axis=1)
        parts = []
        for share, what in (("alpha", "write"), ("beta", "erase")):
            column = self._reshaped(graph, linear(seen, share), f"{prefix}{share}_column", (-1, 1))
            rows = self._rows(graph, linear(seen, what), f"{prefix}{what}")
            parts.append(graph.add("Mul", [column, rows], f"{prefix}{what}_part"))
        change = graph.add("Sub", parts, f"{prefix}change")
        heads = graph.tensor("axis_1", np.array([1], np.int64))
        mean = graph.add("ReduceMean", [change, heads], f"{prefix}mean", keepdims=0)
        return {"h": h, "m": graph.add("Add", [states["m"], mean], f"{prefix}m_new")}

    def _rows(self, graph: Graph, halves: str, prefix: str) -> str:
        """The outer product of two halves in `heads` rows, each divided by its 5-norm: [N,heads,M]."""
        left, right = spread(graph, halves, f"{prefix}_half", [self.side, self.side])
        column = self._reshaped(graph, left, f"{prefix}_left", (self.side, 1))
        row = self._reshaped(graph, right, f"{prefix}_right", (1, self.side))
        outer = graph.add("Mul", [column, row], f"{prefix}_outer")
        shape = (self.options["heads"], self.options["memory_size"])
        flat = self._reshaped(graph, outer, f"{prefix}_flat", shape)
        tape = unit_norm_tape(*NORM)
        return tape_nodes(graph, tape, {"x": flat}, f"{prefix}_norm_")["y"]

    def _reshaped(self, graph: Graph, x: str, output: str, shape: tuple[int, int]) -> str:
        name = "shape_0_" + "_".join(map(str, shape)).replace("-", "m")
        return graph.add(
            "Reshape", [x, graph.tensor(name, np.array([0, *shape], np.int64))], output
        )
