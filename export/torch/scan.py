"""A layer whose recurrence is torch's scan operator, which torch.export preserves: T stays dynamic."""

from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.scan import scan  # not public in torch yet

from .modules import Layer, hold


class ScanLayer(Layer):
    """Any T. The graph holds one step."""

    def forward(
        self, x: Tensor, state: dict[str, Tensor], dt: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        zx = self.project(x)
        rows = zx.shape[0]
        weights = self.step.weights()  # type: ignore[operator]
        until = torch.full_like(dt[:, 0], zx.shape[1]) if lengths is None else lengths

        def step(states: list[Tensor], at: list[Tensor]) -> tuple[list[Tensor], Tensor]:
            zx, dt, t = at
            new = self.advance(zx, states, weights, dt)
            h, kept = hold(new, states, until > t)
            # An output of scan must not be one of its inputs. The view uses N, which makes N an input:
            # AOTInductor allocates y only from sizes that are inputs (torch 2.13; otherwise KeyError: s10).
            return [value.clone() for value in kept], h.clone().view(rows, -1)

        over_time = [
            zx.transpose(0, 1),
            dt.transpose(0, 1).unsqueeze(2),
            torch.arange(zx.shape[1], device=zx.device),
        ]
        last: Any
        last, y = scan(step, self.in_order(state), over_time, dim=0)
        return y.transpose(0, 1).to(self.rounded), self.named(last)
