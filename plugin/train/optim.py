"""Optimizers by name. An optimizer is a function of (parameter groups, learning rate, its settings).

    @register_optimizer("adam", AdamConfig)
    def adam(groups, lr, config): return torch.optim.Adam(groups, lr=lr, ...)

The loop sets the learning rate of every update (schedule times the batch's scale), so an optimizer
needs no schedule of its own. `step()` finds the clipped mean gradient in p.grad. If the optimizer has a true
`takes_factor`, it may get the sum instead, and the number to multiply it by: `step(factor=...)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..config import setting
from ..registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import nn

Groups = list[dict[str, Any]]
Make: TypeAlias = "Callable[[Groups, float, Any], torch.optim.Optimizer]"


class Entry(NamedTuple):
    """A registered optimizer: the dataclass of its settings and the function."""

    config: type
    make: Make


OPTIMIZERS: Registry[Entry] = Registry("optimizer")


def register_optimizer(name: str, config: type) -> Callable[[Make], Make]:
    """Decorator: registers a function (groups, lr, config) -> optimizer as `name`."""

    def enter(make: Make) -> Make:
        OPTIMIZERS.register(name)(Entry(config, make))
        return make

    return enter


@dataclass(frozen=True)
class OptimizerConfig:
    """optimizer"""

    lr: float = setting(1e-3, "learning rate, before the schedule")
    weight_decay: float = setting(0.0, "L2 weight decay (frozen biases have none)")

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name)!r}; accepted: 0 or more")


@dataclass(frozen=True)
class AdamConfig(OptimizerConfig):
    """optimizer (adam)"""

    adam_betas: str = setting("0.9,0.999", "decay of the two running means")
    adam_eps: float = setting(1e-8, "added to the denominator")


@dataclass(frozen=True)
class AdamWConfig(AdamConfig):
    """optimizer (adamw)"""

    weight_decay: float = setting(
        0.01, "weight decay: each update subtracts this share of a weight, times the learning rate"
    )


@dataclass(frozen=True)
class SGDConfig(OptimizerConfig):
    """optimizer (sgd)"""

    momentum: float = setting(0.0, "share of the last step that is repeated")


@dataclass(frozen=True)
class RMSpropConfig(OptimizerConfig):
    """optimizer (rmsprop)"""

    rmsprop_alpha: float = setting(0.9, "decay of the running mean of squares")
    rmsprop_eps: float = setting(1e-8, "added to the denominator")
    momentum: float = setting(0.0, "share of the last step that is repeated")


@dataclass(frozen=True)
class NTASGDConfig(OptimizerConfig):
    """optimizer (nt_asgd)"""

    lr: float = setting(30.0, "learning rate, before the schedule")
    nonmono: int = setting(
        5,
        "averaging starts when the loss exceeds the best one from this many or more validations ago",
    )
    asgd_start: int = setting(
        0, "averaging starts after this many updates at the latest; 0: only the loss decides"
    )


@register_optimizer("adam", AdamConfig)
def adam(groups: Groups, lr: float, config: AdamConfig) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba 2015)."""
    from torch.optim import Adam

    return Adam(groups, lr=lr, **_adam_settings(groups, config))


@register_optimizer("adamw", AdamWConfig)
def adamw(groups: Groups, lr: float, config: AdamWConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""
    from torch.optim import AdamW

    return AdamW(groups, lr=lr, **_adam_settings(groups, config))


@register_optimizer("sgd", SGDConfig)
def sgd(groups: Groups, lr: float, config: SGDConfig) -> torch.optim.Optimizer:
    """Gradient descent, optionally with momentum."""
    from torch.optim import SGD

    return SGD(groups, lr=lr, momentum=config.momentum)


@register_optimizer("rmsprop", RMSpropConfig)
def rmsprop(groups: Groups, lr: float, config: RMSpropConfig) -> torch.optim.Optimizer:
    """Steps divided by a running root mean square of the gradient (Tieleman and Hinton 2012)."""
    from torch.optim import RMSprop

    optimizer = RMSprop(
        groups, lr=lr, alpha=config.rmsprop_alpha, eps=config.rmsprop_eps, momentum=config.momentum
    )
    optimizer.register_load_state_dict_post_hook(_begin_momentum)
    return optimizer


@register_optimizer("nt_asgd", NTASGDConfig)
def nt_asgd(groups: Groups, lr: float, config: NTASGDConfig) -> torch.optim.Optimizer:
    """SGD that averages the weights once validation stops improving (Merity et al. 2018)."""
    from .nt_asgd import NonMonotonicASGD

    return NonMonotonicASGD(groups, lr, config.nonmono, config.asgd_start)


def make_optimizer(name: str, model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer `name` over the model's trained parameters."""
    return OPTIMIZERS.get(name).make(
        parameter_groups(model, config.weight_decay), config.lr, config
    )


def parameter_groups(model: nn.Module, weight_decay: float) -> Groups:
    """Trained parameters; biases with frozen entries are in a separate group without weight decay."""
    from ..layers import Recurrent

    apart = {
        id(layer.bias)
        for layer in model.modules()
        if isinstance(layer, Recurrent) and "frozen" in layer._buffers
    }
    trained = [p for p in model.parameters() if p.requires_grad]
    groups = [{"params": [p for p in trained if id(p) not in apart], "weight_decay": weight_decay}]
    if apart:
        groups.append({"params": [p for p in trained if id(p) in apart], "weight_decay": 0.0})
    return groups


def _begin_momentum(optimizer: torch.optim.Optimizer) -> None:
    """Adds a momentum of 0 to RMSprop's state if it was saved without momentum but now uses it."""
    import torch

    for group in optimizer.param_groups:
        for p in group["params"] if group["momentum"] else ():
            if p in optimizer.state:
                optimizer.state[p].setdefault("momentum_buffer", torch.zeros_like(p))


def _on_gpu(groups: Groups) -> bool:
    """Whether a fused kernel for all parameters is available, which saves most of the host's work."""
    return all(p.is_cuda for group in groups for p in group["params"])


def _adam_settings(groups: Groups, config: AdamConfig) -> dict[str, Any]:
    betas = _pair(config.adam_betas)
    return {"betas": betas, "eps": config.adam_eps, "fused": _on_gpu(groups)}


def _pair(text: str) -> tuple[float, float]:
    """ "0.9,0.999", also in fairseq's brackets, -> (0.9, 0.999)"""
    try:
        first, second = (float(part) for part in text.strip("() ").split(","))
    except ValueError:
        raise ValueError(
            f"adam_betas is {text!r}; accepted: two numbers separated by a comma"
        ) from None
    return first, second
