"""Sequential MNIST: a digit read one pixel per step (Le et al. 2015; PL 4.2, FG table 2).

    input    784 steps of one number, pixel / 255, row after row from the top (`smnist`), or in one
             random order for all images (`psmnist`, or any `permute`)
    target   the digit, at the last step; 50,000 train, 10,000 valid (by data_seed), 10,000 test

`data` is a folder with the four idx files (plain, .xz, .gz), or one that
`tsm-preprocess --dataset mnist` wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..config import setting
from ..data.datasets.images import Split
from ..data.datasets.mnist import SIDE, read_mnist, split_mnist
from .base import register_task
from .pixels import PixelTask


@dataclass(frozen=True)
class SMnistConfig:
    """Sequential MNIST task"""

    data: str = setting("", "folder with the MNIST idx files, or a preprocessed one")
    batch_size: int = setting(100, "images per update, over all processes")
    seed: int = setting(1, "seed of the training order")
    data_seed: int = setting(1, "seed of the validation images")
    permute: int | None = setting(None, "seed of the pixel order; none: row by row")


@dataclass(frozen=True)
class PSMnistConfig(SMnistConfig):
    """Permuted sequential MNIST task"""

    permute: int | None = setting(1, "seed of the pixel order")


@register_task("smnist")
class SMnistTask(PixelTask):
    """Classify the digit once its last pixel has been read."""

    Config = SMnistConfig
    images, files, key = "MNIST", "MNIST idx files", "mnist-pixels"
    shape = (SIDE, SIDE)

    @staticmethod
    def read(root: Path, seed: int) -> dict[str, Split]:
        return split_mnist(read_mnist(root)[0], seed)


@register_task("psmnist")
class PSMnistTask(SMnistTask):
    """Sequential MNIST with the pixels in one fixed random order."""

    Config = PSMnistConfig
