"""Looking into cells and trained layers: numbers first, pictures from the numbers."""

from .decay import DecayCurves, decay_curves, forget_factors, model_decay_curves
from .forgetting import forgetting_curves, gap_curves
from .plot_decay import plot_decay_curves
from .plot_forgetting import plot_forgetting
from .plot_gates import plot_gates
from .retention import memory_of, retention

__all__ = [
    "DecayCurves",
    "decay_curves",
    "forget_factors",
    "forgetting_curves",
    "gap_curves",
    "memory_of",
    "model_decay_curves",
    "plot_decay_curves",
    "plot_forgetting",
    "plot_gates",
    "retention",
]
