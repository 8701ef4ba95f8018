"""The objective of one batch: the loss and the activation regularisers (Merity et al. 2017).

    objective = sum of losses + count (alpha mean(d^2) + beta mean((y_t - y_{t-1})^2))

y is the last layer's output, d the same after dropout. Dividing by the count of the whole update
(all micro-batches, all processes) gives the mean loss plus AR plus TAR. Their gradients are written down
(layers/regularisers.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..criterions import Criterion
from ..layers import Recurrent
from ..layers.regularisers import regulariser_gradients
from ..tasks.base import Batch
from ..tasks.transfer import to_device
from .distributed import State


@dataclass(frozen=True)
class Objective:
    """loss and count are those of the criterion."""

    loss: Tensor
    count: Tensor
    state: State
    extra: list[tuple[Tensor, Tensor]]
    """Activations, each with the gradient of its regulariser."""

    def backward(self) -> None:
        """Adds the gradients of the objective to those of the parameters."""
        roots, gradients = [self.loss], [torch.ones_like(self.loss)]
        for root, gradient in self.extra:
            if root.requires_grad:
                roots.append(root)
                gradients.append(gradient)
        # Else torch would wake a thread of its own for a GPU, which takes about 100 us.
        with torch.autograd.set_multithreading_enabled(False):
            torch.autograd.backward(roots, gradients)


def objective(
    model: Any,
    criterion: Criterion,
    batch: Batch,
    state: State | None,
    alpha: float = 0.0,
    beta: float = 0.0,
    bf16: bool = False,
) -> Objective:
    """Forward pass of a training batch."""
    with precision(batch.x.device, bf16):
        found = model.features(batch.x, batch.lengths, state, batch.dt)
        logits = model.head(found.dropped)
    loss, count = criterion(logits, batch)
    if count.device != loss.device:
        raise ValueError(
            f"a criterion's count is on {count.device}; accepted: where its sum is, {loss.device}"
        )
    extra = regulariser_gradients(found.dropped, found.raw, count.detach(), alpha, beta)
    return Objective(loss, count.detach(), detach(found.state), extra)


@contextmanager
def precision(device: torch.device, bf16: bool) -> Iterator[None]:
    """Runs matrix products in bfloat16, if requested."""
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
        yield


def detach(state: State) -> State:
    """The values without gradients: truncated back-propagation ends here."""
    return [{name: value.detach() for name, value in layer.items()} for layer in state]


def restart(state: State | None, share: float) -> State | None:
    """The state in which each row, with probability `share`, starts from zero: all states of all layers of that
    row at once, also where they are NaN. Draws from the device's generator, but not if `share` is 0."""
    if state is None or not share:
        return state
    like = next(iter(state[0].values()))
    drawn = torch.rand(len(like), 1, device=like.device) < share
    return [{name: value.masked_fill(drawn, 0) for name, value in layer.items()} for layer in state]


def takes_dt(model: nn.Module) -> bool:
    """Whether the cells of all layers use dt."""
    layers = [m for m in model.modules() if isinstance(m, Recurrent)]
    return bool(layers) and all(layer.cell.takes_dt for layer in layers)


def place(batch: Batch, device: torch.device, dt: bool) -> Batch:
    """The batch on the device, without dt if the model takes none."""
    names = ("x", "target", "lengths", "dt", "weight")
    values = {n: getattr(batch, n) for n in names if getattr(batch, n) is not None}
    moved: dict[str, Any] = {n: to_device(v, device) for n, v in values.items()}
    if not dt:
        moved["dt"] = None
    return replace(batch, **moved)


def steps_in(batch: Batch) -> float | Tensor:
    """The number of steps without padding. It is a tensor if reading it would synchronise with a GPU."""
    if batch.lengths is not None:
        return batch.lengths.sum()
    return float(batch.x.shape[0] * batch.x.shape[1])
