"""Opens the output of tsm-preprocess: one object with the dictionary, the tokenizer and the splits."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ..common.lazy import np
from .checksums import check_folder
from .corpus import Corpus
from .files import Entry
from .meta import Meta
from .npy import read_npy
from .series import SeriesSplit, Shape
from .staged_folder import EMBEDDINGS
from .subword import MODEL, SentencePieceTokenizer
from .tokenizers import Tokenizer, plain_tokenizer
from .vocab import DICT, Vocab


class DataDir:
    """A preprocessed folder, verified by its checksums. If it is missing, the error says how to create it."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.meta = Meta.load(self.folder)
        check_folder(self.folder, self.meta)

    @cached_property
    def vocab(self) -> Vocab:
        """The dictionary; its size must be the one in meta.json."""
        vocab = Vocab.load(self.folder / DICT)
        if len(vocab) != self.meta.vocab_size:
            raise ValueError(
                f"{self.folder / DICT}: {len(vocab)} symbols; meta.json says {self.meta.vocab_size}"
            )
        return vocab

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that the data was made with."""
        kind = str((self.meta.tokenizer or {}).get("kind"))
        if kind == SentencePieceTokenizer.kind:
            return SentencePieceTokenizer((self.folder / MODEL).read_bytes())
        return plain_tokenizer(kind)

    def corpus(self, split: str) -> Corpus:
        """The tokens of a split (text)."""
        self._check_split(split)
        corpus = Corpus(self.folder / split)
        if corpus.vocab_size > len(self.vocab):
            raise ValueError(
                f"{corpus.idx_path}: made for {corpus.vocab_size} symbols; "
                f"{DICT} has {len(self.vocab)}"
            )
        classes = self.meta.num_classes
        if classes is not None and corpus.items:
            low, high = int(corpus.labels.min(initial=0)), int(corpus.labels.max(initial=0))
            if low < 0 or high >= classes:
                raise ValueError(
                    f"{corpus.idx_path}: labels run from {low} to {high}; "
                    f"accepted: 0 to {classes - 1}"
                )
        return corpus

    def images(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels of a split (mnist, cifar-10)."""
        self._check_split(split)
        images = self._array(f"{split}.images.npy")
        labels = self._array(f"{split}.labels.npy")
        if images.dtype != np.uint8 or labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"{self.folder}: {split} has images {images.shape} and labels {labels.shape}; "
                "accepted: one each"
            )
        return images, labels

    def series(self, split: str) -> SeriesSplit:
        """The sequences of numbers of a split."""
        self._check_split(split)
        shape = Shape.parse(self.meta.series, str(self.folder))
        sequences, steps = (self.meta.splits[split].get(name) for name in ("lines", "tokens"))
        if type(sequences) is not int or type(steps) is not int or not 0 < sequences <= steps:
            raise ValueError(
                f"{self.folder}: {split} has {sequences!r} sequences of {steps!r} steps in all; "
                "accepted: integers above 0"
            )
        return SeriesSplit(self.folder / split, shape, sequences, steps)

    def embeddings(self) -> np.ndarray | None:
        """Embeddings float32 [len(vocab) + 1, width] (the last row is for padding), or None."""
        if self.meta.embeddings is None:
            return None
        matrix = self._array(EMBEDDINGS)
        if matrix.dtype != np.float32 or matrix.ndim != 2 or len(matrix) != len(self.vocab) + 1:
            raise ValueError(
                f"{self.folder / EMBEDDINGS}: {matrix.dtype} {matrix.shape}; "
                f"accepted: float32 [{len(self.vocab) + 1}, width]"
            )
        return np.array(matrix)

    def _array(self, name: str) -> np.ndarray:
        try:
            return read_npy(Entry(self.folder / name))
        except ValueError as e:
            raise ValueError(f"{self.folder / name}: damaged or cut short ({e})") from e

    def _check_split(self, split: str) -> None:
        if split not in self.meta.splits:
            raise ValueError(
                f"split is {split!r}; {self.folder} has {', '.join(self.meta.splits) or 'none'}"
            )
