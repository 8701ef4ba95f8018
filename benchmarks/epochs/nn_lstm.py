"""The rival: the same model with torch.nn.LSTM in the place of its layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from ...plugin.layers import Recurrent
from ...plugin.layers.dropout import dropped


class TorchLstm(nn.Module):
    """nn.LSTM with the interface of a `Recurrent` layer of cell lstm, and its dropout."""

    def __init__(self, layer: Recurrent) -> None:
        super().__init__()
        if layer.cell.states != ("h", "c") or len(layer.cell.gates) != 4:
            raise ValueError(f"cell {layer.cell.name!r}; accepted beside nn.LSTM: an LSTM")
        self.lstm = nn.LSTM(layer.input_size, layer.hidden_size, batch_first=True)
        self.lstm.to(layer.bias.device)
        self.rates, self.input_size = (layer.input_dropout, layer.weight_dropout), layer.input_size

    @property
    def weight_x(self) -> Tensor:
        return cast(Tensor, self.lstm.weight_ih_l0)

    def forward(
        self,
        x: Tensor,
        state: Mapping[str, Tensor] | None = None,
        dt: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if dt is not None or lengths is not None:
            raise ValueError("dt or lengths were given; accepted by nn.LSTM: neither")
        w, u, *biases = cast(list[Tensor], self.lstm._flat_weights)
        x, u = dropped(x, u, self.rates) if self.training else (x, u)
        if state is None:
            zeros = x.new_zeros(1, x.shape[0], self.lstm.hidden_size)
            first = [zeros, zeros]
        else:
            first = [state[name][None].to(x.dtype) for name in ("h", "c")]
        y, h, c = torch._VF.lstm(
            x, first, [w, u, *biases], True, 1, 0.0, self.training, False, True
        )
        return y, {"h": h[0].float(), "c": c[0].float()}


def replace_layers(model: Any) -> None:
    """Replaces the layers of a model, before its optimizer is made."""
    layers = model.stack.layers
    for i, layer in enumerate(layers):
        layers[i] = TorchLstm(layer)
