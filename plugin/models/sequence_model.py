"""Shared by all families: the calling convention, the stack, and a linear decoder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..layers import Recurrent
from ..layers.linear import Linear
from .inputs import TokenInput
from .settings import ModelConfig, Sizes
from .stack import Stack, State


class Features(NamedTuple):
    """The input of the decoder, and the values that activation regularisers need.

    raw      [B,T,H] the last layer's outputs (TAR is a function of these)
    dropped  the same with dropout applied (AR): [B,T,H], or [B,H] for one output per sequence
    """

    raw: Tensor
    dropped: Tensor
    state: State


class SequenceModel(nn.Module):
    """model(x, lengths=None, state=None, dt=None) -> (logits, state).

    logits = head(features(x).dropped).  x: tokens int [B,T], or float [B,T,I] in a model built with
    `input_size`. lengths [B]: valid steps of each row; after them the state does not change.
    dt [B,T]: time since the previous step, for cells that take it. Pass the returned state back in to continue
    the sequence.

    A family subclasses this, sets its `Config` and defines the width of the logits in `output_size`.
    `config` is a dict of plain values from which `build_from_config` rebuilds the model.
    """

    name: ClassVar[str] = ""
    Config: ClassVar[type[ModelConfig]] = ModelConfig

    def __init__(
        self, settings: ModelConfig, sizes: Sizes, pretrained: Tensor | None = None
    ) -> None:
        super().__init__()
        self.settings = settings
        self.sizes = sizes
        self.config: dict[str, Any] = {}  # filled in by the builder
        self.stack = Stack(settings, sizes, pretrained)
        self.decoder = Linear(settings.widths()[-1], self.output_size(sizes))
        self.reset_decoder()

    @classmethod
    def output_size(cls, sizes: Sizes) -> int:
        """Width of the logits."""
        raise NotImplementedError

    @torch.no_grad()
    def reset_decoder(self) -> None:
        """Draws from U(-1/sqrt H, 1/sqrt H), like the layers."""
        bound = 1 / math.sqrt(self.decoder.in_features)
        for parameter in self.decoder.parameters():
            parameter.uniform_(-bound, bound)

    @property
    def layers(self) -> Sequence[Recurrent]:
        """The recurrent layers, first to last."""
        return cast(Sequence[Recurrent], self.stack.layers)

    @property
    def embed(self) -> TokenInput | None:
        """From tokens to the first layer's input; None in a model with float inputs."""
        return self.stack.embed

    def features(
        self,
        x: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        state: Sequence[Mapping[str, Tensor]] | None = None,
        dt: Tensor | None = None,
    ) -> Features:
        raise NotImplementedError

    def head(self, dropped: Tensor) -> Tensor:
        """logits = W h + b"""
        return self.decoder(dropped)

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        state: Sequence[Mapping[str, Tensor]] | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        found = self.features(x, lengths, state, dt)
        return self.head(found.dropped), found.state


def needed(sizes: Sizes, name: str, family: str) -> int:
    """The size `name`, which the family needs for its output."""
    value: int | None = getattr(sizes, name)
    if value is None:
        raise ValueError(f"{name} was not given; a {family} needs it (an integer of at least 1)")
    return value


def count_parameters(model: nn.Module) -> int:
    """The number of parameters, also of those that `freeze_recurrent` leaves untrained. Shared ones count once;
    a frozen embedding is a buffer and does not count."""
    return sum(parameter.numel() for parameter in model.parameters())
