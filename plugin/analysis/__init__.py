"""Analyses of cells and trained layers. Each computes numbers, and figures are drawn from those numbers."""

from typing import TYPE_CHECKING

from ..common.lazy import lazy

if TYPE_CHECKING:
    from .activations import plot_gates
    from .catalogue import all_analyses, get_analysis
    from .findings.base import DoesNotApply, Finding, Need, register_analysis
    from .probes.decay import DecayCurves, decay_curves, forget_factors, model_decay_curves
    from .probes.forgetting import forgetting_curves, gap_curves
    from .probes.plot_decay import plot_decay_curves
    from .probes.plot_forgetting import plot_forgetting
    from .probes.retention import memory_of, retention
    from .probes.subject import Subject

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

__getattr__ = lazy(
    __name__,
    {
        "DecayCurves": ".probes.decay",
        "DoesNotApply": ".findings.base",
        "Finding": ".findings.base",
        "Need": ".findings.base",
        "Subject": ".probes.subject",
        "all_analyses": ".catalogue",
        "decay_curves": ".probes.decay",
        "forget_factors": ".probes.decay",
        "forgetting_curves": ".probes.forgetting",
        "gap_curves": ".probes.forgetting",
        "get_analysis": ".catalogue",
        "memory_of": ".probes.retention",
        "model_decay_curves": ".probes.decay",
        "plot_decay_curves": ".probes.plot_decay",
        "plot_forgetting": ".probes.plot_forgetting",
        "plot_gates": ".activations",
        "register_analysis": ".findings.base",
        "retention": ".probes.retention",
    },
)
