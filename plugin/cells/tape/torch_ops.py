"""The primitives of `ops.py` on torch tensors, differentiated by autograd: the reference backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .ops import Defined


def _or_number(function: Callable[..., Tensor]) -> Any:
    """`function`, which also takes a number (a constant, the default dt): 0-d float64 keeps all its digits."""

    def apply(x: Tensor | float, *limits: float) -> Tensor:
        number = isinstance(x, (int, float))
        return function(torch.tensor(x, dtype=torch.float64) if number else x, *limits)

    return staticmethod(apply)


class TorchOps(Defined):
    """The same names and values as `NumpyOps`, for any dtype and device."""

    exp = _or_number(torch.exp)
    log = _or_number(torch.log)
    tanh = _or_number(torch.tanh)
    sigmoid = _or_number(torch.sigmoid)
    abs = _or_number(torch.abs)
    clip = _or_number(torch.clamp)
    sinh = _or_number(torch.sinh)
    cosh = _or_number(torch.cosh)

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
