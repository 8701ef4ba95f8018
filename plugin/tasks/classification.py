"""Classification of texts (your own, or IMDB's reviews): one label per text. Texts are truncated to max_length
words.

Rows are padded on the right, and the output is taken at their last word. With `--fixed-length` every row has
max_length steps, and the output is taken at the last one, after the padding (as in the power-law paper). If the
folder has word vectors (GloVe), they are used as the embedding, which is not trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..common.lazy import np
from ..config import setting
from ..data import ClassificationBatch, ClassificationBatches
from ..data.labels import LABELS, dump_labels
from .arrangement import numbers_of_labels
from .base import Batch, Names, Sums, check_splits, register_task
from .rows import class_accuracy, put
from .text import TextTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ClassificationConfig:
    """classification task"""

    data: str = setting("", "folder written by tsm-preprocess from labelled texts")
    batch_size: int = setting(128, "texts per update, over all processes")
    max_tokens: int | None = setting(
        None,
        "instead of --batch-size: steps per update, including padding; texts of similar length are grouped",
    )
    max_length: int = setting(400, "maximum number of words read from a text")
    fixed_length: bool = setting(False, "pad every text to max_length and read the last step")
    pretrained: bool = setting(True, "use the folder's word vectors, if it has any")
    seed: int = setting(1, "seed of the order of the texts")

    def __post_init__(self) -> None:
        for name in ("batch_size", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: 1 or more")


@register_task("classification")
class ClassificationTask(TextTask):
    """Predict the label of a text."""

    Config = ClassificationConfig
    family = "classifier"

    def __init__(self, config: ClassificationConfig, rank: int = 0, world: int = 1) -> None:
        super().__init__(config, rank, world)
        if not config.data:
            raise ValueError(
                "--task classification needs a data folder; make one with: tsm-preprocess "
                "--trainpref FILE.csv --split 0.8,0.1,0.1 --text-column NAME --label-column NAME "
                "--destdir DIR (or --dataset imdb --from DIR)"
            )
        self.folder = self.open_folder("classification")
        classes = self.folder.meta.num_classes
        if not classes:
            raise ValueError(f"{config.data} does not name its classes; preprocess it again")
        self.classes = classes
        self.resident = False
        self._opened: dict[str, ClassificationBatches] = {}
        # The model's number of each label, if it has others.
        self._numbers: np.ndarray | None = None

    def _batches(self, split: str) -> ClassificationBatches:
        """The batches of a split, opened once. train has a new order in every epoch, the others a fixed one."""
        if split not in self._opened:
            self._opened[split] = self._open(split)
            if self.resident:
                self._opened[split].keep_in_memory()
        return self._opened[split]

    def keep_on(self, device: torch.device) -> None:
        """Keeps all texts padded in host memory and makes the batches on the device."""
        super().keep_on(device)
        self.resident = True
        for batches in self._opened.values():
            batches.keep_in_memory()

    def _open(self, split: str) -> ClassificationBatches:
        c = self.config
        return ClassificationBatches(
            self.folder.corpus(split),
            c.batch_size,
            self.vocab.pad_id,
            max_length=c.max_length,
            fixed_length=c.max_length if c.fixed_length else None,
            shuffle=split == "train",
            seed=c.seed,
            rank=self.rank,
            world_size=self.world,
            max_tokens=c.max_tokens if split == "train" else None,
        )

    def check_trainable(self) -> None:
        check_splits(self.config.data, self.folder.meta.splits)

    def model_arguments(self) -> dict[str, Any]:
        import torch

        given: dict[str, Any] = {"vocab_size": len(self.vocab) + 1, "num_classes": self.classes}
        if self.config.fixed_length:
            given["read_at"] = "end"
        vectors = self.folder.embeddings() if self.config.pretrained else None
        if vectors is None:
            return {**given, "freeze_embed": False}
        width = vectors.shape[1]
        return {**given, "pretrained": torch.from_numpy(vectors), "decoder_embed_dim": width}

    def batches_per_epoch(self, epoch: int) -> int:
        return len(self._batches("train"))

    def train_batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        if epoch < 1 or start < 0:
            raise ValueError(
                f"epoch is {epoch} and start {start}; accepted: 1 or more and 0 or more"
            )
        train = self._batches("train")
        train.set_epoch(epoch)
        train.go_to(start)
        for batch in train:
            yield self._tensors(batch)

    def eval_batches(self, split: str) -> Iterator[Batch]:
        there = [name for name in ("valid", "test") if name in self.folder.meta.splits]
        if split not in there:
            raise ValueError(f"split is {split!r}; {self.config.data} has {', '.join(there)}")
        batches = self._batches(split)
        batches.set_epoch(0)
        for batch in batches:
            yield self._tensors(batch)

    def metrics(self, logits: Tensor, batch: Batch) -> Sums:
        return class_accuracy(logits, batch.target)

    def arrange_for(self, model: Names) -> None:
        self._numbers = numbers_of_labels(self.config.data, self.folder.meta.labels, model)

    def assets(self) -> dict[str, bytes]:
        """The assets of a text task, and the names of the labels."""
        labels = self.folder.meta.labels
        return {**super().assets(), **({LABELS: dump_labels(labels)} if labels else {})}

    def summary(self) -> str:
        sizes = ", ".join(
            f"{self.folder.corpus(split).items:,} {split}" for split in self.folder.meta.splits
        )
        how = "read at the last step" if self.config.fixed_length else "read at the last word"
        return (
            f"{self.dataset}: {sizes} texts, {len(self.vocab):,} types, {self.classes} classes; "
            f"first {self.config.max_length} words, {how}"
        )

    def _tensors(self, batch: ClassificationBatch) -> Batch:
        y = batch.y if self._numbers is None else self._numbers[batch.y]
        x, y, lengths = (put(array, self.device) for array in (batch.x, y, batch.lengths))
        return Batch(x, y, lengths=lengths)
