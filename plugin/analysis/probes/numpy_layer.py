"""A trained layer in numpy float64: one step at a time, with its states accessible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from ...cells.tape.ops import NumpyOps
from ...layers import Recurrent


class NumpyLayer:
    """Copies of a layer's parameters; zx = W x + b as in the layer."""

    def __init__(self, layer: Recurrent) -> None:
        self.layer = layer
        self.cell = layer.cell
        self.weight_x = array(layer.matrix("weight_x"))
        self.bias = array(layer.effective_bias())
        self.weights = {name: array(layer.matrix(name)) for name in layer.weights}
        self.vectors = {name: array(value) for name, value in layer.vectors().items()}

    def zero_state(self, batch: int) -> dict[str, np.ndarray]:
        return {name: np.zeros((batch, width)) for name, width in self.layer.widths.items()}

    def project(self, x: np.ndarray) -> np.ndarray:
        """zx [..., G*H]"""
        return x @ self.weight_x.T + self.bias

    def advance(self, zx: np.ndarray, state: Mapping[str, np.ndarray], dt: Any) -> dict[str, Any]:
        """The states after one step, for any cell."""
        return self.cell.advance(
            NumpyOps, zx, state["h"], self.weights, state, self.vectors, self.layer.options, dt
        )

    def tape_inputs(
        self, zx: np.ndarray, state: Mapping[str, np.ndarray], dt: Any
    ) -> dict[str, Any]:
        """The inputs of an element-wise cell's tape in this step, with z = zx + U h' split by gate."""
        if "weight_h" in self.weights:
            zx = zx + state["h"] @ self.weights["weight_h"].T
        z = np.split(zx, len(self.cell.gates), axis=-1)
        inputs: dict[str, Any] = {
            f"z.{gate}": block for gate, block in zip(self.cell.gates, z, strict=True)
        }
        inputs |= {f"s.{name}": value for name, value in state.items()}
        inputs |= {f"v.{name}": value for name, value in self.vectors.items()}
        inputs |= {f"k.{name}": self.layer.options[name] for name in self.cell.constants}
        return {**inputs, "dt": dt}


def array(tensor: Tensor) -> np.ndarray:
    """The values of a tensor as float64 on the CPU."""
    return tensor.detach().double().cpu().numpy()
