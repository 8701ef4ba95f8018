"""The state of every random generator that training may use, as plain values and tensors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.rng import MAX_SEED
from .checkpoint_check import check_like, refuse

WORDS = 624  # words of state in the Mersenne twister of Python and numpy


def seed_all(seed: int) -> None:
    """Seeds torch (all devices), Python and numpy. Seeds from 2^64 on begin at 0 again."""
    seed %= MAX_SEED + 1
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


def check_rng_state(state: Any, device: torch.device, path: Path, where: str) -> None:
    """Raises a ValueError that names the field unless set_rng_state accepts the value."""
    own = get_rng_state(device)
    gpu = state.get("cuda") if isinstance(state, dict) else None
    if own["cuda"] is None or gpu is None:  # this run or the saved one is on the CPU
        own["cuda"] = gpu
    check_like(state, own, path, where)
    places = {"python[1]": state["python"][1][-1], "numpy[2]": state["numpy"][2]}
    for name, place in places.items():
        if place > WORDS:
            raise refuse(path, f"{where}.{name}", place, f"0 to {WORDS}")
    if not all(word < 2**32 for word in state["python"][1]):
        raise refuse(path, f"{where}.python[1]", max(state["python"][1]), "words of 32 bits")
    if state["numpy"][0] != own["numpy"][0] or state["python"][0] != own["python"][0]:
        kinds = state["numpy"][0], state["python"][0]
        raise refuse(path, f"{where}, kinds of generators", kinds, "those of this Python and numpy")
    before = get_rng_state(device)
    try:
        set_rng_state(state, device)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: {where} cannot be used ({error})") from error
    finally:
        set_rng_state(before, device)
