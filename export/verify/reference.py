"""The reference for an exported model: the model in float64, in plain PyTorch, on the CPU."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..common.runner import Array, State

if TYPE_CHECKING:
    from ...plugin.models import SequenceModel


class Reference:
    """A runner whose logits and states are float64 or, with `dtype` float32, those of the model as trained.

    A classifier reads at the last valid step here, as in every exported model; one that was trained to read
    through the padding (read_at "end") gets the padding as steps.
    """

    chunk_size = None

    def __init__(self, model: SequenceModel, dtype: torch.dtype = torch.float64) -> None:
        self.model, self.dtype = copy.deepcopy(model).to(dtype).eval(), dtype
        self.name = str(dtype).removeprefix("torch.")
        for layer in self.model.layers:
            layer.backend = "reference"
        self.stepwise = model.name != "classifier"

    @torch.no_grad()
    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        given = torch.from_numpy(np.ascontiguousarray(x))
        y, last = self.model.stack(
            given if given.dtype == torch.int64 else given.to(self.dtype),
            None if lengths is None else torch.from_numpy(lengths),
            None if state is None else [{n: self._own(v) for n, v in s.items()} for s in state],
            None if dt is None else self._own(dt),
        )
        logits = self.model.head(y if self.stepwise else last[-1]["h"])
        return logits.numpy(), [{n: v.numpy() for n, v in s.items()} for s in last]

    def _own(self, value: Array) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(value)).to(self.dtype)
