"""The state of every random generator a training may draw from, as plain values and tensors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_all(seed: int) -> None:
    """One seed for torch (all devices), Python and numpy."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def get_rng_state(device: torch.device) -> dict[str, Any]:
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    words64 = np.asarray(keys, dtype=np.int64)
    version, words, spare = random.getstate()
    state = {
        "torch": torch.get_rng_state(),
        "python": [version, list(words), spare],
        "numpy": [str(kind), torch.from_numpy(words64), position, has_gauss, gauss],
        "cuda": None,
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_rng_state(state: dict[str, Any], device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    version, words, spare = state["python"]
    random.setstate((version, tuple(words), spare))
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)
