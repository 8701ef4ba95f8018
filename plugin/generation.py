"""Sampling from a language model, one step at a time, with the state carried along.

    q       softmax(z / temperature) in float64, z the logits of the last step
    top-k   the k most probable symbols stay (0: all)
    top-p   then q is renormalised, and the smallest set of most probable symbols with a sum of at least p stays
    draw    the first symbol, by id, at which the running sum of what stays exceeds u times the total

Among equally probable symbols the one with the lower id counts as more probable. Temperature 0 gives the most
probable symbol. u_i in [0, 1) of step i depends only on (seed, i), so the same seed gives the same text, and a
longer text starts with the shorter one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .common.rng import check_seed, uniforms
from .models.sequence_model import SequenceModel
from .models.stack import State

CHUNK = 256  # prompt steps per call


@dataclass(frozen=True)
class Sampling:
    """How the next symbol is chosen."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; accepted: 0 (argmax) or more")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; accepted: 0 (all symbols) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; accepted: above 0, up to 1 (all symbols)")


def probabilities(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The distribution to draw from: float64 [V], 0 for removed symbols."""
    z = np.asarray(logits, dtype=np.float64)
    if z.ndim != 1 or not len(z):
        raise ValueError(f"logits have shape {z.shape}; accepted: [V]")
    best = z.max()
    if not math.isfinite(best):
        raise ValueError(
            f"the largest logit is {best}; accepted: a finite number (did the training diverge?)"
        )
    if sampling.temperature == 0:
        q = np.zeros(len(z))
        q[int(z.argmax())] = 1.0
        return q
    with np.errstate(over="ignore"):  # exp(-inf) = 0 is correct for a tiny temperature
        q = np.exp((z - best) / sampling.temperature)
    q /= q.sum()
    if sampling.top_k or sampling.top_p < 1:
        order = np.argsort(-z, kind="stable")
        order = order[: sampling.top_k or None]
        if sampling.top_p < 1:
            running = np.cumsum(q[order] / q[order].sum())
            order = order[: int(np.searchsorted(running, sampling.top_p)) + 1]
        stays = np.zeros(len(z), dtype=bool)
        stays[order] = True
        q = np.where(stays, q, 0.0)
        q /= q.sum()
    return q


def draw(q: np.ndarray, u: float) -> int:
    """The symbol at u in [0, 1) of the distribution q. Its probability is never 0."""
    running = np.cumsum(q)
    chosen = int(np.searchsorted(running, u * running[-1], side="right"))
    return min(chosen, int(np.flatnonzero(q)[-1]))  # u * sum may be rounded up to the sum


@torch.no_grad()
def generate(
    model: SequenceModel,
    prompt: Sequence[int],
    length: int,
    sampling: Sampling | None = None,
    seed: int = 0,
) -> Iterator[int]:
    """Yields `length` tokens that follow the prompt (1 token or more), as they are drawn."""
    if length < 0:
        raise ValueError(f"length is {length}; accepted: 0 or more")
    if not len(prompt):
        raise ValueError("the prompt is empty; accepted: 1 token or more")
    sampling, seed = sampling or Sampling(), check_seed(seed)
    device = next(model.parameters()).device
    state: State | None = None
    fed = list(prompt)
    for step in range(length):
        for start in range(0, len(fed), CHUNK):
            x = torch.tensor([fed[start : start + CHUNK]], device=device)
            found = model.features(x, state=state)
            state = found.state
        logits = model.head(found.dropped[:, -1])[0].double().cpu().numpy()
        u = float(uniforms(1, seed, "generate", index=step)[0])
        token = draw(probabilities(logits, sampling), u)
        yield token
        fed = [token]
