"""Fixtures of the task tests."""

import hashlib

import numpy as np
import pytest
from torch import Tensor

from tsm.plugin.tasks import TASKS, Batch


@pytest.fixture
def make():
    """make("copy", rank=0, world=1, copy_length=5, ...) -> the task."""

    def build(name, rank=0, world=1, **settings):
        task = TASKS.get(name)
        return task(task.Config(**settings), rank, world)

    return build


@pytest.fixture
def checksum():
    """First 16 hex digits of the SHA-256 of a batch; floats are rounded to 1/4096, so that the last bit of a
    sine, which differs between machines, does not matter."""

    def of(batch: Batch) -> str:
        digest = hashlib.sha256()
        for name in ("x", "target", "lengths", "dt", "weight"):
            value = getattr(batch, name)
            if isinstance(value, Tensor):
                array = value.numpy()
                if array.dtype.kind == "f":
                    array = np.round(array.astype(np.float64) * 4096)
                digest.update(f"{name}{array.shape}".encode())
                digest.update(array.astype("<i8").tobytes())
        return digest.hexdigest()[:16]

    return of
