"""Training side of tsm: cells, layers, models, tasks. Needs torch (the extra `train`).

Names are resolved on first use, so importing the package, or only its cells, does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .common.lazy import lazy

if TYPE_CHECKING:
    from .archs import build_model, list_architectures, register_model_architecture
    from .cells import list_cells, register_cell
    from .criterions import register_criterion
    from .models import build_from_config, register_model
    from .tasks import register_task
    from .train import load_checkpoint, register_lr_scheduler, register_optimizer
    from .trainer import Trainer

_HOME = {
    "register_cell": ".cells",
    "list_cells": ".cells",
    "register_model": ".models",
    "register_model_architecture": ".archs",
    "list_architectures": ".archs",
    "build_model": ".archs",
    "build_from_config": ".models",
    "register_task": ".tasks",
    "register_criterion": ".criterions",
    "register_optimizer": ".train",
    "register_lr_scheduler": ".train",
    "load_checkpoint": ".train",
    "Trainer": ".trainer",
}

__all__ = list(_HOME)

__getattr__ = lazy(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
