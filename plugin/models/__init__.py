"""Models: language models, classifiers and taggers over any cell; `archs.py` names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy
from .build import build_from_config, register_model
from .settings import ModelConfig, Sizes

if TYPE_CHECKING:
    from .sequence_model import Features, SequenceModel, count_parameters
    from .stack import Stack, State

__all__ = [
    "Features",
    "ModelConfig",
    "SequenceModel",
    "Sizes",
    "Stack",
    "State",
    "build_from_config",
    "count_parameters",
    "register_model",
]

__getattr__ = lazy(
    __name__,
    {
        "Features": ".sequence_model",
        "SequenceModel": ".sequence_model",
        "count_parameters": ".sequence_model",
        "Stack": ".stack",
        "State": ".stack",
    },
)
