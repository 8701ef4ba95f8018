"""The interface of all implementations of a layer: their arguments and the gradients they return.

`layer_cpu` and `layer_cuda` are modules with the same functions:

    forward(call, x, weight_x, bias, weight_h, state, vectors, dt, lengths, keep) -> y, last, saved
        vectors: raw, [H] each; their values are call.links of them
    backward(call, needs, ..., saved, grad_y, grad_last, overwrite) -> Gradients
        needs: which gradients, of x, weight_x, bias, weight_h, the states and the vectors
    saved_shapes(call, keep) -> dtype and shape of each array in `saved`

and a constant: READS_INPUTS (backward reads x, weights, h, vectors and y; otherwise `saved` holds everything it
needs).
`layer_cuda.forward` also takes masks of x and weight_h, and saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


def state_dtype_of(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states, accumulation and time in a layer of this dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class LayerCall(NamedTuple):
    cell: str
    constants: tuple[float, ...]
    dtype: torch.dtype
    """The dtype of the matrix products and of y."""
    shape: tuple[int, int, int, int]
    """B, T, I, H; symbols while a graph is traced."""
    input_dtypes: tuple[torch.dtype, ...]
    """Dtypes of x, weight_x, bias and weight_h. Implementations may return gradients in these dtypes."""
    links: tuple[str, ...]
    """The links of the vectors, from raw to value (parameters.py)."""
    scales: tuple[float, float] = (0.0, 0.0)
    """What the numbers that masks of x and weight_h keep are multiplied by; 0: there is no mask."""

    @property
    def state_dtype(self) -> torch.dtype:
        return state_dtype_of(self.dtype)


class Gradients(NamedTuple):
    """The gradients of the inputs; None for those that are not needed."""

    x: Tensor | None
    weight_x: Tensor | None
    bias: Tensor | None
    weight_h: Tensor | None
    state: Tensor | None  # [S,B,H]
    vectors: Sequence[Tensor] | None  # [H] each, with respect to the raw ones
