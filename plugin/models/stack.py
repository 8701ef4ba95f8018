"""The body of all models: input, then recurrent layers with locked dropout between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from ..layers import Recurrent
from .inputs import TokenInput
from .settings import ModelConfig, Sizes

State = list[dict[str, Tensor]]
"""One dict per layer, name -> [B, width]."""


class Stack(nn.Module):
    """x, tokens [B,T] or values [B,T,I] -> (y [B,T,H] of the last layer, before dropout; state).

    x_1 = dropouti(embed(x));  x_{l+1} = dropouth(y_l);  y_l = layer_l(x_l)
    """

    def __init__(
        self,
        config: ModelConfig,
        sizes: Sizes,
        pretrained: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.embed: TokenInput | None = None
        if sizes.input_size is None:
            if sizes.vocab_size is None:
                raise ValueError(
                    "neither vocab_size nor input_size was given; accepted: one of them"
                )
            self.embed = TokenInput(
                sizes.vocab_size,
                config.decoder_embed_dim,
                config.dropoute,
                config.freeze_embed,
                pretrained,
                config.embed_init,
            )
            width = self.embed.width
        else:
            _refuse_token_settings(config, pretrained)
            width = sizes.input_size
        self.layers = nn.ModuleList()
        for hidden, (init, options) in zip(config.widths(), config.layer_inits(), strict=True):
            layer = Recurrent(
                config.cell,
                width,
                hidden,
                backend=config.backend,
                init=init,
                init_options=options,
                weight_dropout=config.wdrop,
                freeze_recurrent=config.freeze_recurrent,
                vector_starts=config.vector_starts(),
                input_dropout=config.dropouth if self.layers else config.dropouti,
                **config.cell_arguments(),
            )
            layer.finite_padding = self.embed is not None or bool(self.layers)
            self.layers.append(layer)
            width = hidden

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | Sequence[int] | None = None,
        state: Sequence[Mapping[str, Tensor]] | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        if state is not None and len(state) != len(self.layers):
            raise ValueError(
                f"state has {len(state)} layers; accepted: None or {len(self.layers)} dicts"
            )
        y = x if self.embed is None else self.embed(x, self.layers[0].weight_x.dtype)
        new: State = []
        for i, layer in enumerate(self.layers):
            y, last = layer(y, None if state is None else state[i], dt, lengths)
            new.append(last)
        return y, new


def _refuse_token_settings(config: ModelConfig, pretrained: Tensor | None) -> None:
    """Float inputs have no vocabulary, so settings that need one are an error."""
    given = {
        "decoder_embed_dim": config.decoder_embed_dim,
        "dropoute": config.dropoute,
        "pretrained": pretrained is not None,
    }
    for name, value in given.items():
        if value:
            raise ValueError(f"{name} = {value!r} with input_size; accepted with vocab_size alone")
