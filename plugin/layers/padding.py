"""Units added to a layer for the kernels' sake, so that a row is a whole number of 16-byte pieces.

A unit that was added has weights of 0 to and from every other, so that it changes nothing of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from .fused_cuda import widened


class Padding:
    """Padding of a layer of `gates` x `hidden`: to what a GPU wants, or none."""

    def __init__(self, gates: int, hidden: int, device: torch.device | None) -> None:
        self.gates, self.hidden = gates, hidden
        wanted = widened(hidden) if device is not None and device.type == "cuda" else hidden
        self.more = wanted - hidden

    def rows(self, weight: Tensor) -> Tensor:
        """Each gate's rows: [G*H, ...] -> [G*(H+more), ...], the new ones 0."""
        if not self.more:
            return weight
        by_gate = weight.unflatten(0, (self.gates, self.hidden))
        return pad(by_gate, (0, 0) * (by_gate.dim() - 2) + (0, self.more)).flatten(0, 1)

    def units(self, values: Tensor, fill: float = 0.0) -> Tensor:
        """The last dimension: [..., H] -> [..., H+more]."""
        return pad(values, (0, self.more), value=fill) if self.more else values

    def cut(self, values: Tensor) -> Tensor:
        return values[..., : self.hidden] if self.more else values
