"""Dropout for sequences (Gal & Ghahramani 2016, Merity et al. 2018): one mask per call, not per step.

    locked      y_t = m * x_t,         m [B,1,C]: the same units of a sequence are dropped at every step
    embedding   y_t = m[token_t] x_t,  m [V]: a dropped word is dropped wherever it occurs
    weights     U~ = m * U             (DropConnect)

The entries of m are 0 with probability p and 1 / (1 - p) otherwise. Outside training m = 1. On a GPU, a layer
applies masks of x and U while it copies them (layer_cuda.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x [B,T,C] with one mask per sequence."""
    if not training or p == 0:
        return x
    return x * _mask(x, (x.shape[0], 1, x.shape[2]), p)


def word_mask(like: Tensor, vocab_size: int, p: float, training: bool) -> Tensor | None:
    """m [V] of the embedding dropout, in the dtype of `like`; None: 1."""
    return None if not training or p == 0 else _mask(like, (vocab_size,), p)


def _mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    return like.new_empty(shape).bernoulli_(1 - p).div_(1 - p)


def weight_drop(weight: Tensor, p: float, training: bool) -> Tensor:
    """The weights with a mask; the gradient reaches the weights themselves."""
    return nn.functional.dropout(weight, p) if p and training else weight


def dropped(x: Tensor, weight_h: Tensor, rates: tuple[float, float]) -> tuple[Tensor, Tensor]:
    """The input and recurrent weights of a layer in training."""
    return locked_dropout(x, rates[0], True), weight_drop(weight_h, rates[1], True)


def drop_mask(shape: Sequence[int], p: float, device: torch.device) -> Tensor | None:
    """Where m is not 0; None if p = 0."""
    return torch.empty(shape, dtype=torch.bool, device=device).bernoulli_(1 - p) if p else None


@lru_cache
def kept_scale(p: float, dtype: torch.dtype) -> float:
    """What m is there: 1 / (1 - p), rounded as in the functions above; 0 if p = 0."""
    return torch.ones((), dtype=dtype, device="cpu").div_(1 - p).item() if p else 0.0
