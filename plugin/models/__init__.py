"""Models: language models, classifiers and taggers over any cell; `archs.py` names them."""

from . import classifier, language_model, tagger  # noqa: F401  (importing a family registers it)
from .base import build_from_config, register_model
from .sequence_model import Features, SequenceModel, count_parameters
from .settings import ModelConfig, Sizes
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
