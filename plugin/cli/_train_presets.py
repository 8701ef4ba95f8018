"""Settings of tsm-train that come from --config and --recipe, converted to flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..command.command import UsageError

RECIPES = {
    "awd-ptb": ("ptb-word", "baseline"),
    "awd-wt2": ("wikitext-2", "baseline"),
    "mts-ptb": ("ptb-word", "multi-timescale"),
    "mts-wt2": ("wikitext-2", "multi-timescale"),
}
"""Short names of popular recipes. Every other recipe is EXPERIMENT/VARIANT as in `tsm-reproduce list`."""


def as_words(settings: Mapping[str, Any]) -> list[str]:
    """{"lr": 0.1, "save": False, "nhid": [3, 4]} -> --lr=0.1 --no-save --nhid=3,4"""
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if value is None or value == "":  # not set
            continue
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, (list, tuple)):
            words.append(f"--{flag}={','.join(map(str, value))}")
        else:
            words.append(f"--{flag}={value}")
    return words


def recipe(name: str) -> dict[str, Any]:
    """The settings of a paper's experiment (plugin/reproduce/recipes), without its data."""
    from ..registry import unknown
    from ..reproduce.recipes.catalogue import EXPERIMENTS

    home, _, variant = name.partition("/")
    if name in RECIPES:
        home, variant = RECIPES[name]
    known = [
        f"{v.home}/{v.name}"
        for e in map(EXPERIMENTS.get, EXPERIMENTS)
        for v in e.variants
        if v.program == "train"
    ]
    if f"{home}/{variant}" not in known:
        raise UsageError(str(unknown("recipe", name, sorted({*known, *RECIPES}))))
    found = EXPERIMENTS.get(home).variant(variant)
    limits = {"max_epoch": found.epochs, "max_update": found.updates}
    return {
        "arch": found.arch,
        "task": found.task,
        "optimizer": found.optimizer,
        **found.settings,
        **{limit: value for limit, value in limits.items() if value},
    }
