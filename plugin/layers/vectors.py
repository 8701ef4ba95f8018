"""Learned per-unit values: from the raw parameter to the value a cell sees, and how the raw one starts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..cells import Vector

_LINKS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sigmoid": (torch.sigmoid, torch.logit),
    "exp": (torch.exp, torch.log),
    "identity": (lambda raw: raw, lambda value: value),
}
_GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # from the value's, and the value
    "sigmoid": torch.ops.aten.sigmoid_backward.default,
    "exp": torch.mul,
    "identity": lambda gradient, value: gradient,
}


def value_of(link: str, raw: Tensor) -> Tensor:
    """link(raw)"""
    return _LINKS[link][0](raw)


def raw_gradient(link: str, gradient: Tensor, value: Tensor) -> Tensor:
    """Of raw, from the gradient of value = link(raw): as autograd does it."""
    return _GRADIENTS[link](gradient, value)


def draw_raw(vector: Vector, count: int, start: tuple[float, float] | None = None) -> Tensor:
    """Raw values [count] whose links are uniform over `start`, or `vector.start` (not on its very edges)."""
    low, high = start or vector.start
    share = torch.rand(count, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
    return _LINKS[vector.link][1](low + (high - low) * share)
