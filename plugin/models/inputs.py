"""Turns tokens into the input of the first layer: a row of a table, or one-hot."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..layers.dropout import word_mask
from ..layers.embedding import embedded, scaled
from .settings import STARTS


class TokenInput(nn.Module):
    """tokens [B,T] -> x [B,T,E], x_t = m[token_t] weight[token_t]; one-hot: weight is the identity [V,V].

    m is the embedding dropout. start: uniform in (-.1, .1), or N(0, 1) as in nn.Embedding. A frozen table is a
    buffer: stored with the model, not a parameter.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        dropout: float = 0.0,
        frozen: bool = False,
        pretrained: Tensor | None = None,
        start: str = "uniform",
    ) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.one_hot = embed_dim == 0
        self.width = embed_dim or vocab_size
        self.dropout = dropout
        if self.one_hot:
            if pretrained is not None:
                raise ValueError(
                    "pretrained was given with decoder_embed_dim = 0; accepted: above 0"
                )
            return
        table = STARTS[start](torch.empty(vocab_size, embed_dim))
        if pretrained is not None:
            table = _checked(pretrained, vocab_size, embed_dim)
        if frozen:
            self.register_buffer("weight", table)
        else:
            self.weight = nn.Parameter(table)

    def forward(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        check_tokens(tokens, self.vocab_size)
        if self.one_hot:
            x = nn.functional.one_hot(tokens.long(), self.vocab_size).to(dtype)
            return scaled(x, tokens, self._mask(x))
        return embedded(self.weight, tokens, self._mask(self.weight))

    def _mask(self, like: Tensor) -> Tensor | None:
        return word_mask(like, self.vocab_size, self.dropout, self.training)

    def extra_repr(self) -> str:
        return f"{self.vocab_size}, {'one-hot' if self.one_hot else self.width}"


def check_tokens(x: Tensor, vocab_size: int) -> None:
    """Raises ValueError unless x is [B,T] with ids below V. Does not synchronise with a GPU."""
    if not isinstance(x, Tensor) or x.dim() != 2 or x.dtype not in (torch.int64, torch.int32):
        got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x is {got}; accepted: tokens, int64 or int32 [B, T]")
    if x.device.type == "cpu" and x.numel() and not torch.compiler.is_compiling():
        low, high = int(x.min()), int(x.max())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"x has token {low if low < 0 else high}; accepted: 0 to {vocab_size - 1}"
            )


def _checked(table: Tensor, vocab_size: int, embed_dim: int) -> Tensor:
    table = torch.as_tensor(table)
    if not table.is_floating_point() or tuple(table.shape) != (vocab_size, embed_dim):
        raise ValueError(
            f"pretrained is {table.dtype} {tuple(table.shape)}; accepted: a float tensor "
            f"[vocab_size, decoder_embed_dim] = [{vocab_size}, {embed_dim}]"
        )
    return table.detach().to(torch.get_default_dtype()).clone()
