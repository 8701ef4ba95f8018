"""W x + b of a layer, and what its recurrence reads beside it, laid out for a device.

On a GPU x gets a column of ones, so that the bias is a column of W and its gradient one of W's, and widths are
rounded up to 16 bytes: other products are several times slower. A unit that was added has weights of 0 to and
from every other, so that it changes nothing of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .fused_cuda import cell_info, widened
from .working_memory import empty

__all__ = ["Projection", "on_gpu", "plain", "widened"]


@dataclass(frozen=True)
class Projection:
    """What forward made. Arrays are None once they have been saved elsewhere for backward."""

    inputs: int
    hidden: int
    gates: int
    ones_beside: bool  # left has a column of ones, w one of biases
    dtypes: tuple[torch.dtype, ...]  # of x, weight_x, bias, weight_h, as they were given
    left: Any  # x, [B*T, I or more]
    w: Any  # [G*H, I or more]
    u: Any
    first: Any  # states [S,B,H]
    vectors: Any  # [K,H]
    zx: Any  # [B,T,G*H]

    def without_arrays(self) -> Projection:
        return replace(self, left=None, w=None, u=None, first=None, vectors=None, zx=None)

    def gradient_of_x(self, flat: Tensor, w: Tensor, rows: Sequence[int]) -> Tensor:
        return (flat @ w)[:, : self.inputs].unflatten(0, list(rows)).to(self.dtypes[0])

    def gradient_of_w(self, flat: Tensor, left: Tensor) -> tuple[Tensor, Tensor]:
        """(of weight_x, of the bias)."""
        product = flat.t() @ left
        if not self.ones_beside:
            return product.to(self.dtypes[1]), flat.sum(0).to(self.dtypes[2])
        blocks = product.unflatten(0, (self.gates, -1))[:, : self.hidden]
        of_w = blocks[..., : self.inputs].reshape(-1, self.inputs)
        return of_w.to(self.dtypes[1]), blocks[..., self.inputs].reshape(-1).to(self.dtypes[2])

    def cut_u(self, grad: Tensor) -> Tensor:
        """The gradient of weight_h, without the units that were added."""
        if grad.shape[1] != self.hidden:
            blocks = grad.unflatten(0, (self.gates, -1))[:, : self.hidden, : self.hidden]
            grad = blocks.reshape(-1, self.hidden)
        return grad.to(self.dtypes[3])


def _sizes(
    x: Tensor, weight_x: Tensor, bias: Tensor, weight_h: Tensor
) -> tuple[int, int, int, tuple[torch.dtype, ...]]:
    hidden = weight_h.shape[1]
    dtypes = tuple(t.dtype for t in (x, weight_x, bias, weight_h))
    return x.shape[2], hidden, weight_h.shape[0] // hidden, dtypes


def plain(
    cell: str,
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Tensor | None,
    vectors: Tensor | None,
) -> Projection:
    """As the arrays are."""
    inputs, hidden, gates, dtypes = _sizes(x, weight_x, bias, weight_h)
    exact = torch.float64 if dtype == torch.float64 else torch.float32
    left, w = x.reshape(-1, inputs).to(dtype), weight_x.to(dtype)
    zx = empty((*x.shape[:2], w.shape[0]), dtype, x.device)
    torch.addmm(bias.to(dtype), left, w.t(), out=zx.view(-1, w.shape[0]))
    first = x.new_zeros(cell_info(cell)["states"], x.shape[0], hidden, dtype=exact)
    first = first if state is None else state
    packed = x.new_empty(0, hidden, dtype=exact) if vectors is None else vectors
    u = weight_h.to(dtype)
    return Projection(inputs, hidden, gates, False, dtypes, left, w, u, first, packed, zx)


def on_gpu(
    cell: str,
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Tensor | None,
    vectors: Tensor | None,
) -> Projection:
    """Widened, with a column of ones."""
    inputs, hidden, gates, dtypes = _sizes(x, weight_x, bias, weight_h)
    batch, wide, deep = x.shape[0], widened(hidden), widened(inputs + 1)
    left = torch.zeros(batch * x.shape[1], deep, dtype=dtype, device=x.device)
    left[:, :inputs].copy_(x.reshape(-1, inputs))
    left[:, inputs].fill_(1)
    w = torch.zeros(gates, wide, deep, dtype=dtype, device=x.device)
    w[:, :hidden, :inputs].copy_(weight_x.unflatten(0, (gates, hidden)))
    w[:, :hidden, inputs].copy_(bias.unflatten(0, (gates, hidden)))
    w = w.flatten(0, 1)
    u = weight_h.to(dtype)
    if wide != hidden:
        u = torch.zeros(gates, wide, wide, dtype=dtype, device=x.device)
        u[:, :hidden, :hidden].copy_(weight_h.unflatten(0, (gates, hidden)))
        u = u.flatten(0, 1)
    if state is None:
        first = torch.zeros(cell_info(cell)["states"], batch, wide, device=x.device)
    else:
        first = _wide(state, wide, 0.0)
    packed = _wide(x.new_empty(0, hidden) if vectors is None else vectors, wide, 1.0)
    zx = (left @ w.t()).unflatten(0, x.shape[:2])
    return Projection(inputs, hidden, gates, True, dtypes, left, w, u, first, packed, zx)


def _wide(values: Tensor, width: int, fill: float) -> Tensor:
    """values [..., H] as float32 [..., width]."""
    if values.shape[-1] == width:
        return values.float()
    out = values.new_full((*values.shape[:-1], width), fill, dtype=torch.float32)
    out[..., : values.shape[-1]].copy_(values)
    return out
