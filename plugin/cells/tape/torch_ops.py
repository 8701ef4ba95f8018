"""The primitives of `ops.py` on torch tensors, differentiated by autograd: the reference backend."""

from __future__ import annotations

import torch
from torch import Tensor

from .ops import Defined


class TorchOps(Defined):
    """The same names and values as `NumpyOps`, for any dtype and device."""

    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    tanh = staticmethod(torch.tanh)
    sigmoid = staticmethod(torch.sigmoid)
    abs = staticmethod(torch.abs)
    clip = staticmethod(torch.clamp)
    sinh = staticmethod(torch.sinh)
    cosh = staticmethod(torch.cosh)

    matmul = staticmethod(torch.matmul)

    @staticmethod
    def transpose(x: Tensor) -> Tensor:
        return x.transpose(-1, -2)

    @staticmethod
    def concat(parts: list[Tensor]) -> Tensor:
        return torch.cat(parts, dim=-1)

    @staticmethod
    def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return x.reshape(shape)

    @staticmethod
    def relu(x: Tensor) -> Tensor:
        return torch.relu(x)

    @staticmethod
    def mean(x: Tensor, axis: int) -> Tensor:
        return x.mean(dim=axis)

    @staticmethod
    def layer_norm(x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:])

    power = staticmethod(torch.pow)
    maximum = staticmethod(torch.maximum)

    @staticmethod
    def at_least(x: Tensor, least: float) -> Tensor:
        return torch.clamp(x, min=least)

    @staticmethod
    def is_at_most(x: Tensor, y: Tensor) -> Tensor:
        return (x <= y).to(x.dtype)

    @staticmethod
    def row_max(x: Tensor) -> Tensor:
        """Only used as a scaling factor that cancels out, so it is not differentiated."""
        return x.detach().amax(dim=-1, keepdim=True)

    @staticmethod
    def row_sum(x: Tensor) -> Tensor:
        return x.sum(dim=-1, keepdim=True)
