"""Random layers, inputs and runs for tests over the registry. Dimensions are named as in
plugin/cells/base.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tsm.plugin.cells import Cell
from tsm.plugin.cells.tape.ops import NumpyOps
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.choose import choose

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


def gradients(layer: Recurrent, sample: Sample) -> dict[str, Tensor]:
    """Outputs, last states, and the gradients of a random weighted sum of them with respect to every input and
    parameter."""
    x = sample.x.clone().requires_grad_()
    state = {name: value.clone().requires_grad_() for name, value in sample.state.items()}
    layer.zero_grad()
    y, last = Sample(x, state, sample.dt, sample.lengths).run(layer)
    generator = torch.Generator().manual_seed(5)
    total = torch.zeros((), dtype=torch.float64)
    for tensor in (y, *last.values()):
        weight = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        total = total + (weight * tensor.double()).sum()
    total.backward()
    found: dict[str, Any] = {"y": y, "grad x": x.grad}
    found |= {f"last {name}": value for name, value in last.items()}
    found |= {f"grad state {name}": value.grad for name, value in state.items()}
    found |= {f"grad {name}": parameter.grad for name, parameter in layer.named_parameters()}
    missing = [name for name, value in found.items() if value is None]
    assert not missing, f"no gradient reached {missing}"
    return found


def run_numpy(layer: Recurrent, sample: Sample) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The layer in numpy, step by step, independent of torch: the ground truth in float64."""
    cell = layer.cell

    def array(tensor: Tensor) -> np.ndarray:
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
