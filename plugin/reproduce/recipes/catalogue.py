"""All experiments, in the order in which the page shows them and `all` runs them."""

from __future__ import annotations

from ...registry import unknown
from ..recipe import EXPERIMENTS, Experiment
from . import (  # noqa: F401
    beyond,
    beyond_text,
    characters,
    copying,
    copying_claims,
    dynamics,
    images,
    reviews,
    sequences,
    word_claims,
    words,
)

ORDER = (
    "imdb",
    "copy",
    "ptb-char",
    "ptb-char-settings",
    "frequency-discrimination",
    "psmnist-pl",
    "dyck2",
    "ptb-word",
    "ptb-word-500",
    "frequency-bins",
    "alpha-sweep",
    "markov-text",
    "wikitext-2",
    "text8",
    "smnist-pl",
    "psmnist-fg",
    "psmnist-fg-settings",
    "psmnist-fg-small",
    "smnist-fg",
    "scifar-fg",
    "variable-copy",
    "copy-generalization",
    "fixed-p",
    "start-p",
    "adding",
    "timing",
    "toy",
    "sampling-rate",
    "reset-gate",
    "power-law-words",
    "timescales-wikitext-2",
    "text-windows",
)


def experiments(name: str = "all") -> list[Experiment]:
    """The experiment of that name, or all of them."""
    if name == "all":
        rest = [other for other in EXPERIMENTS if other not in ORDER]  # those of plug-ins
        return [EXPERIMENTS.get(known) for known in (*ORDER, *rest)]
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, [*EXPERIMENTS, "all", "next", "list", "page"])
    return [EXPERIMENTS.get(name)]
