"""All analyses by name: importing this module registers them. A new analysis is a new file and a line here."""

from __future__ import annotations

from . import (
    activations,
    alpha_sweep,
    bias_timescales,
    by_length,
    decay,
    decay_simulation,
    dyck2_timescales,
    frequency_bins,
    gate_map,
    learned_p,
    markov,
    reference_times,
    routing,
    timescale_fit,
    timescales,
    timescales_over_training,
    toy,
    unit_ablation,
    word_ablation,
)
from .findings.base import ANALYSES, Analysis

__all__ = ["ORDER", "all_analyses", "get_analysis"]

# The order in a report: first what the units do, then what the model needs them for, then theory.
ORDER = (
    timescales,
    bias_timescales,
    timescales_over_training,
    timescale_fit,
    alpha_sweep,
    decay,
    gate_map,
    word_ablation,
    routing,
    frequency_bins,
    reference_times,
    learned_p,
    unit_ablation,
    by_length,
    dyck2_timescales,
    markov,
    decay_simulation,
    toy,
    activations,
)


def get_analysis(name: str) -> Analysis:
    return ANALYSES.get(name)


def all_analyses() -> list[Analysis]:
    """The built-in analyses in `ORDER`, then those of plug-ins by name."""
    place = {module.__name__: i for i, module in enumerate(ORDER)}
    entries = [ANALYSES.get(name) for name in ANALYSES]
    return sorted(entries, key=lambda a: (place.get(a.function.__module__, len(place)), a.name))
