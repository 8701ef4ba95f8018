"""Images read one pixel per step and classified at the last one: the base of sMNIST and sCIFAR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..common.lazy import np
from ..common.rng import check_seed, permutation
from ..data.data_dir import DataDir
from ..data.datasets.images import Split
from ..data.meta import SPLITS
from .base import Batch, Sums
from .rows import FixedTask, class_accuracy, put

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class PixelTask(FixedTask):
    """A subclass defines its images, their shape, and how official files are read and split.

    `config.permute` is the seed of a random pixel order for all images; None means row by row.
    """

    family = "classifier"
    images: ClassVar[str]  # name used in messages
    files: ClassVar[str]  # what `data` may contain if it is not preprocessed
    shape: ClassVar[tuple[int, ...]]  # [rows, columns] or [rows, columns, channels]
    key: ClassVar[str]  # key of the random numbers for the pixel order

    def __init__(self, config: Any, rank: int = 0, world: int = 1) -> None:
        import torch

        super().__init__(config, rank, world)
        self.steps = self.shape[0] * self.shape[1]
        self._sets = self._load(config.data, config.data_seed)
        self.order: np.ndarray | None = None
        self._resident: dict[str, Tensor] = {}
        # A tensor, because on a GPU division by a number would become multiplication by 1/255, which rounds
        # twice.
        self._white = torch.tensor(255.0)
        if config.permute is not None:
            self.order = permutation(self.steps, check_seed(config.permute), self.key)

    @staticmethod
    def read(root: Path, seed: int) -> dict[str, Split]:
        """The splits, from official files."""
        raise NotImplementedError

    def _load(self, folder: str, seed: int) -> dict[str, Split]:
        """split -> (uint8 [N,T,I], labels [N]), from official files or from what tsm-preprocess wrote."""
        if not folder:
            raise ValueError(f"data is empty; accepted: a folder with the {self.files}")
        root = Path(folder)
        if not root.is_dir():
            raise FileNotFoundError(f"data is {folder}; accepted: a folder with the {self.files}")
        if (root / "meta.json").is_file():
            opened = DataDir(root)
            sets = {split: opened.images(split) for split in SPLITS}
        else:
            sets = self.read(root, seed)
        for split, (images, labels) in sets.items():
            if not len(labels) or images.shape[1:] != self.shape:
                wanted = ", ".join(map(str, self.shape))
                raise ValueError(
                    f"{split} images are {images.shape}; accepted: [N, {wanted}], N > 0"
                )
        return {
            split: (np.asarray(images).reshape(len(images), self.steps, -1), np.asarray(labels))
            for split, (images, labels) in sets.items()
        }

    def model_arguments(self) -> dict[str, Any]:
        return {"input_size": self._sets["train"][0].shape[2], "num_classes": 10}

    def rows(self, split: str) -> int:
        return len(self._sets[split][1])

    def gather(self, split: str, rows: np.ndarray) -> Batch:
        import torch

        images, labels = self._sets[split]
        target = put(labels[rows], self.device)
        if split in self._resident:
            pixels = self._resident[split][put(rows, self.device)]
        else:
            pixels = torch.from_numpy(self._pixels(images[rows]))
        return Batch(x=pixels.float() / self._white, target=target)

    def _pixels(self, images: np.ndarray) -> np.ndarray:
        """Pixels uint8 [B,T,I] in reading order."""
        return images if self.order is None else images[:, self.order]

    def keep_on(self, device: torch.device) -> None:
        """All images, as bytes."""
        import torch

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
        return f"sequential {self.images}: {how}; {sizes}"
