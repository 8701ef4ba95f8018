"""NT-ASGD (Merity et al. 2018): gradient descent whose iterates are averaged once a trigger has fired.

    w <- w - lr (grad + decay w)                     as long as validation improves, then also
    a <- a + (w - a) / n                             n = 1, 2, ... updates since the trigger

Averaging starts when more than `nonmono` validation losses are recorded and the new one exceeds the smallest of
all but the last `nonmono`. From then on the average a is evaluated, saved and exported, while training
continues with w.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..layers import descent

# No momentum. All arguments are required.
_PLAIN: dict[str, Any] = {"momentum": 0.0, "dampening": 0.0, "nesterov": False}
_PLAIN |= {"maximize": False, "is_first_step": False}


class AveragingOptimizer(torch.optim.Optimizer):
    """An optimizer whose weights to evaluate differ from those that it trains."""

    averaging = False

    def on_validation(self, loss: float) -> bool:
        """Called with the loss of every scheduled validation; returns whether averaging has just begun."""
        raise NotImplementedError

    @contextmanager
    def evaluation_weights(self) -> Iterator[None]:
        """The parameters hold the weights to evaluate inside this block."""
        raise NotImplementedError


@contextmanager
def evaluation_weights(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """The model holds the weights to evaluate inside this block (NT-ASGD: the averages)."""
    if isinstance(optimizer, AveragingOptimizer):
        with optimizer.evaluation_weights():
            yield
    else:
        yield


class NonMonotonicASGD(AveragingOptimizer):
    """SGD, then averaged SGD (t0 = 0, lambda = 0)."""

    def __init__(
        self, params: Any, lr: float = 30.0, nonmono: int = 5, start_update: int = 0
    ) -> None:
        if nonmono < 1 or start_update < 0:
            raise ValueError(
                f"nonmono is {nonmono}, asgd_start {start_update}; accepted: 1 and 0 or more"
            )
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        self.nonmono, self.start_update = nonmono, start_update
        self.losses: list[float] = []
        self.updates = 0
        self.averaged = 0

    @property
    def takes_factor(self) -> bool:
        """Whether `step` takes a factor: all weights are stepped by a kernel, which can multiply the gradients
        on the way. A subclass with a step of its own finds them multiplied."""
        own = type(self).step is NonMonotonicASGD.step
        return own and descent.has_kernels([w for g in self.param_groups for w in g["params"]])

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, factor: Tensor | None = None
    ) -> float | None:
        """A step with the gradients times `factor` (float64), which may change the gradients."""
        loss = None if closure is None else closure()
        self.updates += 1
        if self.averaging:
            self.averaged += 1
        for group in self.param_groups:
            trained = [w for w in group["params"] if w.grad is not None]
            if trained:
                self._step(trained, group["lr"], group["weight_decay"], factor)
        if self.start_update and self.updates >= self.start_update:
            self.averaging = True
        return loss

    def _step(self, trained: list[Tensor], lr: float, decay: float, factor: Tensor | None) -> None:
        """Updates all weights of a group, in one launch or a few."""
        steps = [w.grad for w in trained if w.grad is not None]
        averages = self._averages(trained) if self.averaging else []
        share = 1 / self.averaged if averages else 0.0
        if descent.has_kernels([*trained, *steps, *averages]):
            descent.descend(trained, steps, averages, factor, lr, decay, share)
            return
        if factor is not None:
            torch._foreach_mul_(steps, factor.to(steps[0].dtype))
        # torch's fused step reads memory in order, whatever the strides: on a CPU it does not check them.
        if all(t.is_contiguous() and t.dtype == torch.float32 for t in (*trained, *steps)):
            torch._fused_sgd_(trained, steps, [], weight_decay=decay, lr=lr, **_PLAIN)
        else:
            steps = list(torch._foreach_add(steps, trained, alpha=decay))
            torch._foreach_add_(trained, steps, alpha=-lr)
        if averages:
            torch._foreach_lerp_(averages, trained, share)

    def _averages(self, trained: list[Tensor]) -> list[Tensor]:
        for w in trained:
            if "average" not in self.state[w]:
                self.state[w]["average"] = torch.zeros_like(w)
        return [self.state[w]["average"] for w in trained]

    def on_validation(self, loss: float) -> bool:
        before = self.losses[: -self.nonmono]
        begins = not self.averaging and bool(before) and loss > min(before)
        self.losses.append(loss)
        self.averaging = self.averaging or begins
        return begins

    @contextmanager
    def evaluation_weights(self) -> Iterator[None]:
        averages = {w: s["average"] for w, s in self.state.items() if "average" in s}
        training = {w: w.detach().clone() for w in averages}
        with torch.no_grad():
            for w, a in averages.items():
                w.copy_(a)
        try:
            yield
        finally:
            with torch.no_grad():
                for w, value in training.items():
                    w.copy_(value)

    def state_dict(self) -> dict[str, Any]:
        progress = {
            "losses": list(self.losses),
            "updates": self.updates,
            "averaged": self.averaged,
            "averaging": self.averaging,
        }
        return {**super().state_dict(), "nt_asgd": progress}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "nt_asgd"})
        progress = state_dict["nt_asgd"]
        counts = progress["updates"], progress["averaged"]
        losses = progress["losses"]
        if (
            type(progress["averaging"]) is not bool
            or not all(type(n) is int and n >= 0 for n in counts)
            or not isinstance(losses, list)
            or not all(type(loss) is float and math.isfinite(loss) for loss in losses)
        ):
            raise ValueError(f"optimizer.nt_asgd is {progress}; accepted: losses and counts")
        self.losses = list(progress["losses"])
        self.updates, self.averaged = progress["updates"], progress["averaged"]
        self.averaging = progress["averaging"]
