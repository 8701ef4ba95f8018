"""Language models that learn from the text while they are scored on it; a token is scored before the model
learns from it.

dynamic evaluation (Krause et al. 2018), after each segment, g the gradient of its mean loss in nats:
    w <- w - lr g + decay (w_trained - w)
neural cache (Grave et al. 2017), h the last layer's outputs, i the last `size` steps before t:
    p(x) = (1 - share) p_model(x) + share sum_i softmax_i(theta h_t . h_i) [x_{i+1} = x]
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data import FixedLength, LMStreams
from ..data.batching import Tokens
from ..train.objective import detach
from .score import Scores


@dataclass(frozen=True)
class Adaptation:
    """Settings of dynamic evaluation (lr, decay; off if lr is 0) and of the cache (size, theta, share; off if
    size is 0)."""

    lr: float = 0.0
    decay: float = 0.0
    size: int = 0
    theta: float = 0.0
    share: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.lr or self.size)


NOT_ADAPTING = Adaptation()


class Cache:
    """The last `size` outputs h [B,n,H] with the tokens [B,n] that came after them."""

    def __init__(self, adaptation: Adaptation) -> None:
        self.adaptation = adaptation
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def mix(self, log_p: Tensor, h: Tensor, target: Tensor) -> Tensor:
        """Returns log p(target) [B,T] of model and cache together, then adds these steps to the cache."""
        a = self.adaptation
        h = h.detach().float()
        keys = h if self.keys is None else torch.cat([self.keys, h], 1)
        values = target if self.values is None else torch.cat([self.values, target], 1)
        steps = h.shape[1]
        before = keys.shape[1] - steps
        now = torch.arange(before, before + steps, device=h.device)[:, None]
        then = torch.arange(keys.shape[1], device=h.device)
        there = (then < now) & (then >= now - a.size)
        weight = (a.theta * h @ keys.mT).masked_fill(~there, -math.inf)
        same = values[:, None, :] == target[:, :, None]
        found = weight.masked_fill(~same, -math.inf).logsumexp(-1) - weight.logsumexp(-1)
        mixed = torch.logaddexp(math.log1p(-a.share) + log_p, math.log(a.share) + found)
        self.keys, self.values = keys[:, -a.size :], values[:, -a.size :]
        return torch.where(there.any(-1), mixed, log_p)  # at the first step the cache is empty


def score_adapting(
    model: Any,
    tokens: Tokens,
    batch_size: int,
    steps: int,
    stateful: bool,
    device: torch.device,
    adaptation: Adaptation,
) -> Iterator[Scores]:
    """Like `score_tokens`, but a copy of the model is scored and adapts."""
    model = copy.deepcopy(model).eval()
    trained = [p for p in model.parameters() if p.requires_grad]
    start = [p.detach().clone() for p in trained]
    cache, state = Cache(adaptation), None
    for batch in LMStreams(tokens, batch_size, FixedLength(steps)):
        x, y = (torch.from_numpy(a).to(device) for a in (batch.x, batch.y))
        with torch.set_grad_enabled(bool(adaptation.lr)):
            found = model.features(x, None, state, None)
            logits = model.head(found.dropped).float()
            log_p = logits.log_softmax(-1).gather(-1, y[..., None])[..., 0]
        state = detach(found.state) if stateful else None
        with torch.no_grad():
            said = cache.mix(log_p, found.raw, y) if adaptation.size else log_p
            bits = -said.double().cpu().numpy() / math.log(2)
        if adaptation.lr:
            gradients = torch.autograd.grad(-log_p.mean(), trained, allow_unused=True)
            with torch.no_grad():
                for p, g, first in zip(trained, gradients, start, strict=True):
                    p.lerp_(first, adaptation.decay)
                    if g is not None:
                        p.add_(g, alpha=-adaptation.lr)
        yield Scores(batch.start, batch.y, bits)
