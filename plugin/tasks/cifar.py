"""Sequential CIFAR-10: a small photograph read one pixel per step (FG table 2).

    input    1,024 steps of three numbers, red, green and blue / 255, row after row from the top, or in
             one random order for all images (`permute`)
    target   one of ten classes, at the last step; 45,000 train, 5,000 valid (by data_seed), 10,000 test

`data` is a folder with the binary version of CIFAR-10 (its archive, or the six files in it), or one that
`tsm-preprocess --dataset cifar-10` wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import setting
from ..data.datasets.cifar10 import CHANNELS, SIDE, read_cifar10, split_cifar10
from ..data.datasets.images import Split
from .base import register_task
from .pixels import PixelTask


@dataclass(frozen=True)
class SCifarConfig:
    """Sequential CIFAR-10 task"""

    data: str = setting("", "folder with CIFAR-10's binary version, or a preprocessed one")
    batch_size: int = setting(100, "images per update, over all processes")
    seed: int = setting(1, "seed of the training order")
    data_seed: int = setting(1, "seed of the validation images")
    permute: int | None = setting(None, "seed of the pixel order; none: row by row")


@register_task("scifar")
class SCifarTask(PixelTask):
    """Classify a photograph after its last pixel."""

    Config = SCifarConfig
    images, files, key = "CIFAR-10", "binary version of CIFAR-10", "cifar10-pixels"
    shape = (SIDE, SIDE, CHANNELS)

    @staticmethod
    def read(root: Path, seed: int) -> dict[str, Split]:
        return split_cifar10(read_cifar10(root)[0], seed)
