"""Training: the loop and its parts.

From the bottom up: settings, copies, distributed, signals, rng < graphs, optim, schedules, objective,
checkpoint, progress < evaluate < loop < resume < run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy

if TYPE_CHECKING:
    from .checkpoint import Loaded, load_checkpoint
    from .optim import register_optimizer
    from .schedules import register_lr_scheduler

__all__ = ["Loaded", "load_checkpoint", "register_lr_scheduler", "register_optimizer"]

__getattr__ = lazy(
    __name__,
    {
        "Loaded": ".checkpoint",
        "load_checkpoint": ".checkpoint",
        "register_optimizer": ".optim",
        "register_lr_scheduler": ".schedules",
    },
)
