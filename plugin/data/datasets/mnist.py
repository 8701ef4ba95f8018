"""MNIST: idx files -> images uint8 [N, 28, 28] and labels uint8 [N]; 50,000 / 10,000 / 10,000,
valid chosen by seed.

idx: two zero bytes, type 8 (bytes), number of dimensions, each dimension as a big-endian 32-bit
number, then the bytes.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

from ...common.bounded import read_at_most
from ...common.lazy import np
from ..files import Entry, require
from .images import Split, hold_out

FILES = {"train": "train", "test": "t10k"}
EXPECTED = {"train": 60_000, "test": 10_000}
SIDE = 28
MAX_IMAGES = 10_000_000


def read_mnist(root: Path) -> tuple[dict[str, Split], list[str], dict[str, str]]:
    """The official train and test sets, the counts that do not match, and the names of the files."""
    out: dict[str, Split] = {}
    differences, names = [], {}
    for split, stem in FILES.items():
        image_entry = require(root, _names(stem, "images", 3), f"MNIST {split} images")
        label_entry = require(root, _names(stem, "labels", 1), f"MNIST {split} labels")
        images, labels = read_idx(image_entry, 3), read_idx(label_entry, 1)
        if images.shape != (len(labels), SIDE, SIDE):
            raise ValueError(
                f"{image_entry.name}: shape {images.shape}; "
                f"accepted: ({len(labels)}, {SIDE}, {SIDE}) as labelled"
            )
        if labels.size and labels.max() > 9:
            raise ValueError(f"{label_entry.name}: label {labels.max()}; accepted: 0 to 9")
        if len(labels) != EXPECTED[split]:
            differences.append(f"{split} has {len(labels):,} images instead of {EXPECTED[split]:,}")
        out[split] = images, labels
        names[split] = image_entry.name
    return out, differences, names


def split_mnist(sets: dict[str, Split], seed: int) -> dict[str, Split]:
    """Moves a sixth of the training images, chosen by seed, to valid."""
    return hold_out(sets, seed, "mnist-valid", 6)


def read_idx(entry: Entry, dimensions: int) -> np.ndarray:
    """Reads an idx file of bytes. Its size must match its header."""
    start = 4 + 4 * dimensions
    with entry.open() as f:
        head = f.read(start)
        if len(head) < start or head[:4] != bytes((0, 0, 8, dimensions)):
            raise ValueError(
                f"{entry.name}: not an idx file of bytes in {dimensions} dimensions, or cut short"
            )
        shape = struct.unpack(f">{dimensions}I", head[4:])
        if shape[0] > MAX_IMAGES or shape[1:] not in ((), (SIDE, SIDE)):
            raise ValueError(
                f"{entry.name}: shape {shape}; accepted: up to {MAX_IMAGES:,} images of {SIDE} x {SIDE}"
            )
        size = math.prod(shape)
        raw = read_at_most(f, size, entry.name)
    if len(raw) != size:
        raise ValueError(f"{entry.name}: {len(raw):,} bytes of data; its header promises {size:,}")
    return np.frombuffer(raw, dtype=np.uint8).reshape(shape)


def _names(stem: str, what: str, dimensions: int) -> list[str]:
    base = f"{stem}-{what}-idx{dimensions}-ubyte"
    return [base, f"mnist.{base}", f"{stem}-{what}.idx{dimensions}-ubyte"]
