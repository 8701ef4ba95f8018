"""Sequential MNIST: a digit read one pixel a step (Le et al. 2015; PL 4.2, FG table 2).

    input    784 steps of one number, pixel / 255, row after row from the top (`smnist`), or in one
             random order for all images (`psmnist`, or any `permute`)
    target   the digit, at the last step; 50,000 train, 10,000 valid (by seed), 10,000 test

`data` is a folder with the four idx files (plain, .xz, .gz), or one that
`tsm-preprocess --dataset mnist` wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.rng import check_seed, permutation
from ..config import setting
from ..data.data_dir import DataDir
from ..data.datasets.mnist import read_mnist, split_mnist
from .base import Batch, Sums, register_task
from .rows import SPLITS, FixedTask, class_accuracy, put

PIXELS = 784


@dataclass(frozen=True)
class SMnistConfig:
    """Sequential MNIST task"""

    data: str = setting("", "folder with the MNIST idx files, or a preprocessed one")
    batch_size: int = setting(100, "images in an update, over all processes")
    seed: int = setting(1, "chooses the validation images and the order of training")
    permute: int | None = setting(None, "seed of the order of the pixels; none: row after row")


@dataclass(frozen=True)
class PSMnistConfig(SMnistConfig):
    """Permuted sequential MNIST task"""

    permute: int | None = setting(1, "seed of the order of the pixels")


def load_images(folder: str, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """split -> (uint8 [N,784], labels [N]), from idx files or from what tsm-preprocess wrote."""
    if not folder:
        raise ValueError("data is empty; accepted: a folder with the MNIST idx files")
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"data is {folder}; accepted: a folder with the MNIST idx files")
    if (root / "meta.json").is_file():
        opened = DataDir(root)
        sets = {split: opened.images(split) for split in SPLITS}
    else:
        sets = split_mnist(read_mnist(root)[0], seed)
    for split, (images, labels) in sets.items():
        if not len(labels) or images[0].size != PIXELS:
            raise ValueError(f"{split} images are {images.shape}; accepted: [N, 28, 28], N > 0")
    return {
        split: (np.asarray(images).reshape(-1, PIXELS), np.asarray(labels))
        for split, (images, labels) in sets.items()
    }


@register_task("smnist")
class SMnistTask(FixedTask):
    """Name the digit after its last pixel."""

    Config = SMnistConfig
    family = "classifier"

    def __init__(self, config: SMnistConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        self._sets = load_images(config.data, config.seed)
        self.order: np.ndarray | None = None
        self._resident: dict[str, Tensor] = {}
        # A tensor, not a number: a GPU would multiply by 1/255 instead, and round twice.
        self._white = torch.tensor(255.0)
        if config.permute is not None:
            self.order = permutation(PIXELS, check_seed(config.permute), "mnist-pixels")

    def model_arguments(self) -> dict[str, Any]:
        return {"input_size": 1, "num_classes": 10}

    def rows(self, split: str) -> int:
        return len(self._sets[split][1])

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        images, labels = self._sets[split]
        target = put(labels[rows], self.device)
        if split in self._resident:
            pixels = self._resident[split][put(rows, self.device)]
        else:
            pixels = torch.from_numpy(self._pixels(images[rows]))
        return Batch(x=pixels.float()[:, :, None] / self._white, target=target)

    def _pixels(self, images: np.ndarray) -> np.ndarray:
        """uint8 [B,784] in the order in which they are read."""
        return images if self.order is None else images[:, self.order]

    def keep_on(self, device: torch.device) -> None:
        """All images, as bytes."""
        super().keep_on(device)
        self._white = self._white.to(device)
        for split, (images, _) in self._sets.items():
            self._resident[split] = torch.from_numpy(np.array(self._pixels(images))).to(device)

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        return class_accuracy(logits, batch.target)

    def summary(self) -> str:
        sizes = ", ".join(f"{self.rows(split):,} {split}" for split in SPLITS)
        seed = self.config.permute
        how = "row after row" if seed is None else f"pixels in the order of seed {seed}"
        return f"sequential MNIST: {how}; {sizes}"


@register_task("psmnist")
class PSMnistTask(SMnistTask):
    """Name the digit after its last pixel, the pixels in one random order."""

    Config = PSMnistConfig
