"""Random layers, inputs and runs of any cell. Dimensions are named as in plugin/cells/base.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...plugin.cells import Cell
from ...plugin.cells.tape.ops import NumpyOps
from ...plugin.layers import Recurrent
from ...plugin.layers.choose import choose

Array = np.ndarray[Any, Any]

B, T, I, H = 5, 17, 3, 6


@dataclass
class Sample:
    """What a layer is called with."""

    x: Tensor
    state: dict[str, Tensor]
    dt: Tensor | None
    lengths: Tensor | None

    def run(self, layer: Recurrent) -> tuple[Tensor, dict[str, Tensor]]:
        return layer(self.x, self.state, dt=self.dt, lengths=self.lengths)


def make_layer(
    cell: type[Cell], dtype: torch.dtype, backend: str = "reference", **options: Any
) -> Recurrent:
    torch.manual_seed(7)
    return Recurrent(cell.name, I, H, backend=backend, **options).to(dtype)


def backends(cell: type[Cell], dtype: torch.dtype) -> list[str]:
    """The backends that can run this cell in this type on a CPU."""
    fused = choose(cell, dtype, torch.device("cpu")).fused
    return ["reference", "fused"] if fused else ["reference"]


def make_sample(layer: Recurrent, with_dt: bool = True, with_lengths: bool = True) -> Sample:
    """A sample with rows of every kind (full, short, of one step, of none) and with states that the cell could
    reach."""
    generator = torch.Generator().manual_seed(11)
    exact, dtype = layer.state_dtype, layer.weight_x.dtype
    state = {
        name: torch.rand(B, width, generator=generator, dtype=torch.float64).to(exact)
        for name, width in layer.widths.items()
    }
    dt = torch.rand(B, T, generator=generator, dtype=torch.float64) * 2 + 0.05
    return Sample(
        torch.randn(B, T, I, generator=generator, dtype=torch.float64).to(dtype),
        state,
        dt.to(exact) if with_dt and layer.cell.takes_dt else None,
        torch.tensor([T, 3, 0, 1, T - 1]) if with_lengths else None,
    )


def run_numpy(layer: Recurrent, sample: Sample) -> tuple[Array, dict[str, Array]]:
    """The layer in numpy, step by step, independent of torch: the ground truth in float64."""
    cell = layer.cell

    def array(tensor: Tensor) -> Array:
        return tensor.detach().numpy()

    weights = {name: array(layer.matrix(name)) for name in layer.weights}
    vectors = {name: array(value) for name, value in layer.vectors().items()}
    state = {name: array(value) for name, value in sample.state.items()}
    zx = array(sample.x) @ array(layer.matrix("weight_x")).T + array(layer.effective_bias())
    y = np.zeros((*zx.shape[:2], state["h"].shape[-1]))
    for t in range(zx.shape[1]):
        dt = 1.0 if sample.dt is None else array(sample.dt)[:, t, None]
        new = cell.advance(
            NumpyOps, zx[:, t], state["h"], weights, state, vectors, layer.options, dt
        )
        live = np.ones(len(y), bool) if sample.lengths is None else t < array(sample.lengths)
        y[live, t] = new["h"][live]
        state = {name: np.where(live[:, None], new[name], state[name]) for name in new}
    return y, state
