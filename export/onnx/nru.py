"""The non-saturating recurrent unit as ONNX nodes, after `Nru.advance` in plugin/cells/nru.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .nodes import Graph
from .products import Products, spread

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent

LEAST_NORM = 1e-12  # as in the cell
LEAST_SIZE = 1e-30


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
        """Outer product of two halves, in heads rows, each divided by its 5-norm: [N,heads,M].

        The norm is taken of x / max|x|: fifth powers of small numbers vanish in a float32.
        """
        left, right = spread(graph, halves, f"{prefix}_half", [self.side, self.side])
        column = self._reshaped(graph, left, f"{prefix}_left", (self.side, 1))
        row = self._reshaped(graph, right, f"{prefix}_right", (1, self.side))
        outer = graph.add("Mul", [column, row], f"{prefix}_outer")
        shape = (self.options["heads"], self.options["memory_size"])
        flat = self._reshaped(graph, outer, f"{prefix}_flat", shape)
        last = graph.tensor("axis_last", np.array([-1], np.int64))
        size = graph.add("Abs", [flat], f"{prefix}_abs")
        most = graph.add("ReduceMax", [size, last], f"{prefix}_most", keepdims=1)
        most = graph.add("Max", [most, graph.number(LEAST_SIZE)], f"{prefix}_safe")
        unit = graph.add("Div", [size, most], f"{prefix}_unit")
        fifth = graph.add("Pow", [unit, graph.number(5.0)], f"{prefix}_fifth")
        total = graph.add("ReduceSum", [fifth, last], f"{prefix}_total", keepdims=1)
        root = graph.add("Pow", [total, graph.number(0.2)], f"{prefix}_root")
        norm = graph.add("Mul", [root, most], f"{prefix}_norm")
        least = graph.add("Max", [norm, graph.number(LEAST_NORM)], f"{prefix}_least")
        return graph.add("Div", [flat, least], f"{prefix}_rows")

    def _reshaped(self, graph: Graph, x: str, output: str, shape: tuple[int, int]) -> str:
        name = "shape_0_" + "_".join(map(str, shape)).replace("-", "m")
        return graph.add(
            "Reshape", [x, graph.tensor(name, np.array([0, *shape], np.int64))], output
        )
