"""Prepares the parameters of a layer for its cell: links of vectors, rows of zeros."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..cells import Cell, Vector

_LINKS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "sigmoid": (torch.sigmoid, torch.logit),
    "exp": (torch.exp, torch.log),
    "identity": (lambda raw: raw, lambda value: value),
}
# (gradient of the value, value) -> gradient of raw
_GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sigmoid": torch.ops.aten.sigmoid_backward.default,
    "exp": torch.mul,
    "identity": lambda gradient, value: gradient,
}


def value_of(link: str, raw: Tensor) -> Tensor:
    """link(raw)"""
    return _LINKS[link][0](raw)


def values_of(links: Sequence[str], raw: Sequence[Tensor], dtype: torch.dtype) -> Tensor | None:
    """All values concatenated [K*H], contiguous; None if there are none."""
    values = [value_of(link, r).to(dtype) for link, r in zip(links, raw, strict=True)]
    if len(values) > 1:
        return torch.cat(values)
    return values[0].contiguous() if values else None


def raw_gradient(link: str, gradient: Tensor, value: Tensor) -> Tensor:
    """The gradient of raw from that of value = link(raw), as autograd computes it."""
    return _GRADIENTS[link](gradient, value)


def raw_gradients(
    links: Sequence[str], gradients: Tensor | None, values: Tensor | None
) -> list[Tensor]:
    """The gradient of every raw vector, from the concatenated gradients of all values."""
    if gradients is None or values is None:
        return []
    if len(links) == 1:
        return [raw_gradient(links[0], gradients, values)]
    parts = zip(links, gradients.chunk(len(links)), values.chunk(len(links)), strict=True)
    return [raw_gradient(*part) for part in parts]


def draw_raw(vector: Vector, count: int, start: tuple[float, float] | None = None) -> Tensor:
    """Raw values [count] for which link(raw) is uniform inside `start`, by default inside `vector.start`."""
    share = torch.rand(count, dtype=torch.float64).clamp(1e-4, 1 - 1e-4)
    return _LINKS[vector.link][1](replace(vector, start=start or vector.start).at(share))


def start_value(
    parameter: Tensor,
    cell: type[Cell],
    name: str,
    fan_in: int,
    part: tuple[float, float] | None = None,
) -> None:
    """Fills a parameter from U(-1/sqrt n, 1/sqrt n), n = `fan_in`, or as the cell declares. `part`: start range
    of a vector. On the meta device there is nothing to fill, and torch.rand would import torch's compiler,
    which takes over a second."""
    vector = cell.vectors.get(name.removesuffix("_raw"))
    if parameter.is_meta:
        return
    if name in cell.starts:
        parameter.fill_(cell.starts[name])
    elif vector is not None:
        parameter.copy_(draw_raw(vector, parameter.numel(), part))
    else:
        bound = 1 / math.sqrt(fan_in)
        parameter.uniform_(-bound, bound)


def all_rows(cell: type[Cell], source: str, weight: Tensor) -> Tensor:
    """A weight or bias for "x" or "h", expanded to rows for every gate; gates that do not read it get zeros.

    If no gate reads it, it has no rows.
    """
    own = cell.gates_of(source)
    if len(own) in (0, len(cell.gates)):
        return weight
    blocks = dict(zip(own, weight.chunk(len(own)), strict=True))
    zeros = torch.zeros_like(blocks[own[0]])
    return torch.cat([blocks.get(gate, zeros) for gate in cell.gates])
