"""Tiny generated data of the same kind as a real set, for `--smoke`. Results on it mean nothing."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np

from ..common.rng import uniforms
from ..data.build.options import Options
from ..data.build.prepare import prepare, prepare_text
from ..data.build.sources import user_text
from ..data.datasets import cifar10
from ..data.grammar import grammar_corpus
from ..data.meta import SPLITS
from ..data.tokenizers import plain_tokenizer

WORDS, REVIEWS, IMAGES = 400, 24, 18
CHARACTERS = ("ptb-char", "ptb-char-raw", "ptb-char-27", "text8")


def make_stand_in(name: str, dest: Path) -> None:
    """Write the folder `dest` as `tsm-preprocess` would, from a few generated lines or images."""
    options = Options(allow_differences=True)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        if name == "imdb":
            _write_reviews(root)
            prepare(name, root, dest, options, glove=False)
        elif name in IMAGE_WRITERS:
            IMAGE_WRITERS[name](root)
            prepare(name, root, dest, options)
        else:
            kind = "char" if name in CHARACTERS else "word"
            files = _write_texts(root)
            prepare_text(user_text(files, plain_tokenizer(kind)), dest, options)


def _words(split: str, count: int) -> list[str]:
    corpus = grammar_corpus(1, 3 * count, count, count)
    tokens = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}[split].tokens
    return [corpus.vocabulary[token] for token in tokens]


def _write_texts(root: Path) -> dict[str, Path]:
    files = {}
    for split in SPLITS:
        files[split] = root / f"{split}.txt"
        words = [word for word in _words(split, WORDS) if word != "<eos>"]
        files[split].write_text(
            "\n".join(" ".join(words[i : i + 9]) for i in range(0, len(words), 9))
        )
    return files


def _write_reviews(root: Path) -> None:
    words = [word for word in _words("train", WORDS) if word.isalpha()]
    lines = [
        f"{split}\t{i % 2}\t{i}\t7\t{' '.join(words[3 * i : 3 * i + 5 + i])}"
        for split in ("train", "test")
        for i in range(REVIEWS)
    ]
    (root / "imdb.tsv").write_text("\n".join(lines) + "\n")


def _write_digits(root: Path) -> None:
    for stem in ("train", "t10k"):
        pixels = (256 * uniforms(IMAGES * 784, 1, stem)).astype(np.uint8)
        head = struct.pack(">4B3I", 0, 0, 8, 3, IMAGES, 28, 28)
        (root / f"{stem}-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
        labels = (np.arange(IMAGES) % 10).astype(np.uint8)
        head = struct.pack(">4BI", 0, 0, 8, 1, IMAGES)
        (root / f"{stem}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


def _write_photographs(root: Path) -> None:
    for split, names in cifar10.FILES.items():
        for number, name in enumerate(names):
            records = (256 * uniforms(6 * cifar10.RECORD, 1, split, number)).astype(np.uint8)
            records[:: cifar10.RECORD] %= 10
            (root / name).write_bytes(records.tobytes())


IMAGE_WRITERS = {"mnist": _write_digits, "cifar-10": _write_photographs}
