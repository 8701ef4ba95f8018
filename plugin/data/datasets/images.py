"""Shared by the image sets: labelled images, with validation images held out of training."""

from __future__ import annotations

from typing import TypeAlias

from ...common.lazy import np
from ...common.rng import permutation

Split: TypeAlias = "tuple[np.ndarray, np.ndarray]"  # images uint8 [N, ...], labels uint8 [N]


def hold_out(sets: dict[str, Split], seed: int, key: str, one_in: int) -> dict[str, Split]:
    """One in `one_in` training images, chosen by seed, is moved to valid; the order is kept."""
    images, labels = sets["train"]
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[permutation(len(labels), seed, key)[: len(labels) // one_in]] = True
    return {
        "train": (images[~held_out], labels[~held_out]),
        "valid": (images[held_out], labels[held_out]),
        "test": sets["test"],
    }
