"""Dropout for sequences (Gal & Ghahramani 2016, Merity et al. 2018): one mask per call, not per step.

    locked      y_t = m * x_t,         m [B,1,C]: the same units of a sequence are dropped at every step
    embedding   y_t = m[token_t] x_t,  m [V]: a dropped word is dropped wherever it occurs

The entries of m are 0 with probability p and 1 / (1 - p) otherwise. Outside training m = 1. Dropout of
recurrent weights is in `plugin/layers/parameters.py`.
"""

from __future__ import annotations

from torch import Tensor


def locked_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """x [B,T,C] with one mask per sequence."""
    if not training or p == 0:
        return x
    return x * _mask(x, (x.shape[0], 1, x.shape[2]), p)


def embedding_dropout(
    x: Tensor, tokens: Tensor, vocab_size: int, p: float, training: bool
) -> Tensor:
    """x [B,T,E], the embeddings of tokens [B,T], with one mask over the vocabulary."""
    if not training or p == 0:
        return x
    return x * _mask(x, (vocab_size,), p)[tokens.long()].unsqueeze(-1)


def _mask(like: Tensor, shape: tuple[int, ...], p: float) -> Tensor:
    return like.new_empty(shape).bernoulli_(1 - p).div_(1 - p)
