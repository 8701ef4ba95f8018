"""Language models: predict the next symbol at each step."""

from __future__ import annotations

import torch
from torch import Tensor

from .build import register_model
from .sequence_model import needed
from .settings import LanguageModelConfig, Sizes
from .stepwise import StepwiseModel


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
        """Like other decoders, but with embeddings the bias starts at 0 (Merity et al. 2018)."""
        super().reset_decoder()
        if self.embed is not None and not self.embed.one_hot:
            self.decoder.bias.zero_()
