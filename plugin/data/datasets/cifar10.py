"""CIFAR-10, binary version: six files -> images uint8 [N, 32, 32, 3] and labels uint8 [N]; 45,000 / 5,000 /
10,000, valid chosen by seed.

A file consists of records of 3,073 bytes: the label, then 1,024 bytes each of red, green and blue, row after
row.
"""

from __future__ import annotations

from pathlib import Path

from ...common.bounded import read_at_most
from ...common.lazy import np
from ..files import Entry, require
from .images import Split, hold_out

FILES = {
    "train": [f"data_batch_{number}.bin" for number in range(1, 6)],
    "test": ["test_batch.bin"],
}
IMAGES = 10_000  # in every official file
SIDE, CHANNELS = 32, 3
RECORD = 1 + CHANNELS * SIDE * SIDE


def read_cifar10(root: Path) -> tuple[dict[str, Split], list[str], dict[str, str]]:
    """The official train and test sets, the counts that do not match, and the names of the files."""
    out: dict[str, Split] = {}
    differences, names = [], {}
    for split, files in FILES.items():
        entries = [require(root, [name], f"CIFAR-10 {split} images") for name in files]
        parts = [read_records(entry) for entry in entries]
        images, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
        wanted = IMAGES * len(files)
        if len(labels) != wanted:
            differences.append(f"{split} has {len(labels):,} images instead of {wanted:,}")
        out[split] = images, labels
        names[split] = ", ".join(entry.name for entry in entries)
    return out, differences, names


def split_cifar10(sets: dict[str, Split], seed: int) -> dict[str, Split]:
    """Moves a tenth of the training images, chosen by seed, to valid."""
    return hold_out(sets, seed, "cifar10-valid", 10)


def read_records(entry: Entry) -> Split:
    """Images and labels of a file, which must consist of whole records."""
    with entry.open() as f:
        raw = read_at_most(f, IMAGES * RECORD, entry.name)
    if len(raw) % RECORD:
        raise ValueError(
            f"{entry.name}: {len(raw):,} bytes; accepted: whole records of {RECORD:,} bytes"
        )
    records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, RECORD)
    labels, planes = records[:, 0], records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    if labels.size and labels.max() > 9:
        raise ValueError(f"{entry.name}: label {labels.max()}; accepted: 0 to 9")
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.copy()
