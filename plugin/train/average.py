"""The mean of several checkpoints of one model, which is often better than the last checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .checkpoint import check_dictionary, check_model, check_weights, model_of, read_checkpoint


def average_checkpoints(paths: Sequence[str | Path]) -> dict[str, Any]:
    """A checkpoint whose weights are the mean of those in the files, summed in float64.

    It can be evaluated, exported and fine-tuned. Training cannot be resumed from it, since the state of an
    optimizer cannot be averaged. Integer tensors are taken from the last file.
    """
    if not paths:
        raise ValueError("no checkpoint was given; accepted: one or more")
    sums: dict[str, torch.Tensor] = {}
    last: dict[str, Any] = {}
    model = None
    for path in paths:
        read = read_checkpoint(path)
        if model is None:
            model = model_of(read, path)
        else:
            check_model(read, last["config"]["model"], path)
            _check_seed(read, last, path)
            check_dictionary(read, last["config"].get("text", {}).get("dictionary"), path)
            check_weights(model, read["model"], path)
        last = read
        for name, value in last["model"].items():
            if value.is_floating_point():
                sums[name] = sums.get(name, 0.0) + value.double()
    weights = {
        name: (sums[name] / len(paths)).to(value.dtype) if name in sums else value
        for name, value in last["model"].items()
    }
    rest = {"optimizer": {}, "train_state": {}, "assets": last.get("assets", {})}
    return {"model": weights, "config": last["config"], **rest}


def _check_seed(read: dict[str, Any], before: dict[str, Any], path: str | Path) -> None:
    """Different runs have their units in different orders, so the mean of two runs is meaningless."""
    seed, other = (c["config"].get("loop", {}).get("seed") for c in (read, before))
    if seed != other:
        raise ValueError(
            f"{path} was trained with --seed {seed}, the previous one with {other}; accepted: "
            "checkpoints of one run"
        )
