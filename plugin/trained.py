"""A trained model from a checkpoint: weights, settings, dictionary and tokenizer.

The data is not needed: the checkpoint contains dict.txt and the sentencepiece model, and its config names the
tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from .criterions import CRITERIONS, with_output_names
from .data import Tokenizer, Vocab
from .data.labels import COLUMNS, LABELS, TARGETS, load_labels
from .data.ranges import RANGES, Ranges
from .data.reading import READING, Reading
from .data.roles import ROLES, load_roles
from .data.subword import MODEL, SentencePieceTokenizer
from .data.tokenizers import plain_tokenizer
from .data.vocab import DICT
from .models.sequence_model import SequenceModel
from .train.checkpoint import model_of, read_checkpoint
from .train.checkpoint_check import refuse


@dataclass(frozen=True)
class Trained:
    """model: in eval mode. config: the settings it was trained with. assets: name -> bytes."""

    path: Path
    model: SequenceModel
    config: dict[str, Any]
    assets: dict[str, bytes]

    @cached_property
    def vocab(self) -> Vocab:
        """The dictionary it was trained with, including the token counts of the training data."""
        if DICT not in self.assets:
            raise ValueError(f"{self.path} has no {DICT}: it was not trained on text")
        return Vocab.loads(self.assets[DICT], f"{self.path}: {DICT}")

    @cached_property
    def labels(self) -> list[str] | None:
        """The names of its classes, if the data has them."""
        return self._names(LABELS)

    @cached_property
    def targets(self) -> list[str] | None:
        """The names of its outputs if they are numbers, not classes."""
        return self._names(TARGETS)

    @cached_property
    def columns(self) -> list[str] | None:
        """The names of the values in each input step, if the data has them."""
        return self._names(COLUMNS, self.model.layers[0].input_size)

    @cached_property
    def ranges(self) -> Ranges | None:
        """The ranges of its inputs in the training data, if they are known."""
        if RANGES not in self.assets:
            return None
        where, count = f"{self.path}: {RANGES}", self.model.layers[0].input_size
        return Ranges.parse(self.assets[RANGES], where, count)

    @cached_property
    def roles(self) -> dict[str, str]:
        """Which columns of the training data named the sequence and held dt or the time; {} if unknown."""
        return load_roles(self.assets.get(ROLES, b""), f"{self.path}: {ROLES}")

    @cached_property
    def reading(self) -> Reading | None:
        """How many tokens of a text it was trained to read; None means all."""
        if READING not in self.assets:
            return None
        return Reading.parse(self.assets[READING], f"{self.path}: {READING}")

    def _names(self, file: str, count: int | None = None) -> list[str] | None:
        if file not in self.assets:
            return None
        count = count or self.model.decoder.out_features
        return load_labels(self.assets[file], f"{self.path}: {file}", count)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""
        if MODEL not in self.assets:
            return plain_tokenizer(self.config["text"].get("tokenizer", ""))
        try:
            return SentencePieceTokenizer(self.assets[MODEL])
        except ImportError as error:
            raise ValueError(f"{self.path} was trained on pieces: {error}") from error


def open_trained(path: str | Path, device: torch.device | str = "cpu") -> Trained:
    """Reads a checkpoint. Errors are one sentence."""
    checkpoint = read_checkpoint(path)
    config = checkpoint["config"]
    for part in ("model", "task", "text"):
        if not isinstance(config.get(part), dict):
            raise ValueError(
                f"{path} does not contain its {part}; accepted: a checkpoint of tsm-train"
            )
    model = model_of(checkpoint, path).to(device).eval()
    assets = {name: data.numpy().tobytes() for name, data in _assets(checkpoint, path).items()}
    length = config["task"].get("max_length")
    if model.name == "classifier" and model.embed is not None and type(length) is int:
        fixed = getattr(model.settings, "read_at", "last") == "end"
        assets.setdefault(READING, Reading(length, fixed).dump())
    if (criterion := config.get("criterion")) in CRITERIONS:  # for files of earlier versions
        assets = with_output_names(assets, CRITERIONS.get(criterion), model)
    return Trained(Path(path), model, config, assets)


def _assets(checkpoint: dict[str, Any], path: str | Path) -> dict[str, torch.Tensor]:
    found = checkpoint.get("assets", {})
    if not isinstance(found, dict):
        raise refuse(path, "assets", found, "a table of files")
    for name, data in found.items():
        flat = isinstance(data, torch.Tensor) and data.dtype == torch.uint8 and data.dim() == 1
        if type(name) is not str or not flat:
            raise refuse(path, f"assets.{name}", data, "the bytes of a file, uint8 [n]")
    return found
