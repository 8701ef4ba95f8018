"""Looking into cells and trained layers: numbers first, pictures from the numbers."""

from .activations import plot_gates
from .base import DoesNotApply, Finding, Need, register_analysis
from .catalogue import all_analyses, get_analysis
from .decay import DecayCurves, decay_curves, forget_factors, model_decay_curves
from .forgetting import forgetting_curves, gap_curves
from .plot_decay import plot_decay_curves
from .plot_forgetting import plot_forgetting
from .retention import memory_of, retention
from .subject import Subject

__all__ = [
    "DecayCurves",
    "DoesNotApply",
    "Finding",
    "Need",
    "Subject",
    "all_analyses",
    "decay_curves",
    "forget_factors",
    "forgetting_curves",
    "gap_curves",
    "get_analysis",
    "memory_of",
    "model_decay_curves",
    "plot_decay_curves",
    "plot_forgetting",
    "plot_gates",
    "register_analysis",
    "retention",
]
