"""Language models: at each step, what symbol comes next."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..config import setting
from .base import register_model
from .sequence_model import needed
from .settings import ModelConfig, Sizes
from .tagger import StepwiseModel


@dataclass(frozen=True)
class LanguageModelConfig(ModelConfig):
    """model (language model)"""

    share_decoder_input_output_embed: bool = setting(
        False,
        "the decoder's weight is the embedding; the last layer is then decoder_embed_dim wide "
        "where decoder_hidden_size is one number",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.share_decoder_input_output_embed:
            return
        embed, last = self.decoder_embed_dim, self.widths()[-1]
        if not embed or self.freeze_embed:
            raise ValueError(
                "share_decoder_input_output_embed with "
                f"decoder_embed_dim = {embed}, freeze_embed = {self.freeze_embed}; "
                "accepted: decoder_embed_dim above 0, freeze_embed = False"
            )
        if last != embed:
            raise ValueError(
                f"decoder_hidden_size ends with {last}; accepted with "
                f"share_decoder_input_output_embed: decoder_embed_dim = {embed}"
            )

    def widths(self) -> tuple[int, ...]:
        widths = super().widths()
        if self.share_decoder_input_output_embed and len(self.decoder_hidden_size) == 1:
            return (*widths[:-1], self.decoder_embed_dim)
        return widths


@register_model("lm")
class LanguageModel(StepwiseModel):
    """logits [B,T,V]: softmax(logits_t) = p(x_{t+1} | x_1 .. x_t)."""

    Config = LanguageModelConfig
    settings: LanguageModelConfig

    def __init__(
        self, settings: LanguageModelConfig, sizes: Sizes, pretrained: Tensor | None = None
    ) -> None:
        super().__init__(settings, sizes, pretrained)
        if settings.share_decoder_input_output_embed:
            assert self.embed is not None  # decoder_embed_dim > 0, see the config
            self.decoder.weight = self.embed.weight

    @classmethod
    def output_size(cls, sizes: Sizes) -> int:
        return needed(sizes, "vocab_size", "lm")

    @torch.no_grad()
    def reset_decoder(self) -> None:
        """As elsewhere, but with embeddings the bias starts at 0 (Merity et al. 2018)."""
        super().reset_decoder()
        if self.embed is not None and not self.embed.one_hot:
            self.decoder.bias.zero_()
