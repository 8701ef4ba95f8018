"""Records the inputs of every recurrent layer when a model is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...layers import Recurrent


@dataclass(frozen=True)
class LayerCall:
    """A layer and its arguments in a call: x [B,T,I], state, dt and lengths."""

    layer: Recurrent
    x: Tensor
    state: dict[str, Tensor] | None = None
    dt: Tensor | None = None
    lengths: Tensor | None = None


@torch.no_grad()
def layer_calls(model: nn.Module, *inputs: Any, **named: Any) -> list[LayerCall]:
    """Calls `model(*inputs, **named)` once without dropout; returns the calls of its layers in order."""
    calls: list[LayerCall] = []

    def note(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert isinstance(layer, Recurrent)
        calls.append(LayerCall(layer, *args, **kwargs))

    layers = [module for module in model.modules() if isinstance(module, Recurrent)]
    if not layers:
        raise ValueError(f"model is a {type(model).__name__} without a Recurrent layer")
    hooks = [layer.register_forward_pre_hook(note, with_kwargs=True) for layer in layers]
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        model(*inputs, **named)
    finally:
        for module, training in modes.items():
            module.training = training
        for hook in hooks:
            hook.remove()
    return calls
