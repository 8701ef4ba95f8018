"""meta.json: describes a preprocessed folder, so that training needs no further flags. The same input gives the
same bytes: there are no dates and no paths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..common.atomic import write_bytes
from .labels import check_labels
from .series import TASKS as SERIES
from .series import Shape
from .staged_folder import FORMAT, META, recover

VERSION = 1
TASKS = ("language_modeling", "classification", "images", *SERIES.values())
SPLITS = ("train", "valid", "test")
LIMIT = 1 << 24  # bytes

V = TypeVar("V")


@dataclass
class SplitStats:
    """The statistics of a split in the final table and in meta.json."""

    lines: int = 0
    tokens: int = 0
    types: int = 0
    unk: int = 0
    words: int | None = None
    characters: int = 0
    bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The entry in meta.json."""
        return asdict(self)


@dataclass
class Meta:
    """One field per fact. `splits` maps train, valid and test to their statistics."""

    task: str
    dataset: str | None
    tokenizer: dict[str, Any] | None
    splits: dict[str, dict[str, Any]]
    split_rule: str
    seed: int
    vocab_size: int | None = None
    unk_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None  # classification only: see vocab.py
    num_classes: int | None = None
    labels: list[str] | None = None  # names of the classes
    series: dict[str, Any] | None = None  # for sequences of numbers, see series.py
    threshold: int = 0
    nwords: int = 0
    embeddings: dict[str, Any] | None = None
    sources: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    tsm_version: str = ""

    def save(self, folder: Path) -> None:
        """Write folder/meta.json, atomically."""
        record = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_bytes(folder / META, (json.dumps(record, indent=2, sort_keys=True) + "\n").encode())

    @classmethod
    def load(cls, folder: Path) -> Meta:
        """Read folder/meta.json; errors name the field."""
        recover(folder)
        path = folder / META
        if not path.is_file():
            raise FileNotFoundError(missing_data(folder))
        if path.stat().st_size > LIMIT:
            raise ValueError(f"{path}: {path.stat().st_size:,} bytes; accepted: at most {LIMIT:,}")
        try:
            record = json.loads(path.read_bytes())
            # Half of a surrogate pair is an error here.
            json.dumps(record, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as e:
            raise ValueError(f"{path}: damaged or cut short ({e})") from e
        if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
            raise ValueError(f"{path}: not written by tsm-preprocess")
        if (version := record.pop("version", None)) != VERSION:
            raise ValueError(f"{path}: version is {version!r}; accepted: {VERSION}")
        try:
            meta = cls(**record)
        except TypeError as e:
            raise ValueError(f"{path}: {e}") from None
        meta._check(path)
        meta.splits = by_split(meta.splits)
        return meta

    def _check(self, path: Path) -> None:
        if self.task not in TASKS:
            raise ValueError(f"{path}: task is {self.task!r}; accepted: {', '.join(TASKS)}")
        for name in ("vocab_size", "unk_id", "eos_id", "pad_id", "num_classes"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{path}: {name} is {value!r}; accepted: an integer or null")
        if self.labels is not None:
            check_labels(self.labels, self.num_classes, str(path))
        if not isinstance(self.files, list) or not all(map(_is_name, self.files)):
            raise ValueError(
                f"{path}: files is {self.files!r}; accepted: names of files in the folder"
            )
        if not isinstance(self.splits, dict) or not all(
            isinstance(s, dict) for s in self.splits.values()
        ):
            raise ValueError(f"{path}: splits is not a table of tables")
        if self.task in SERIES.values():
            Shape.parse(self.series, str(path))
        elif self.task != "images" and (
            self.vocab_size is None or not isinstance(self.tokenizer, dict)
        ):
            raise ValueError(f"{path}: task {self.task} without a vocab_size or a tokenizer")


def by_split(found: Mapping[str, V]) -> dict[str, V]:
    """split -> value, with train first, then valid and test."""
    return {split: found[split] for split in sorted(found, key=(*SPLITS, *found).index)}


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isprintable() and Path(name).name == name


def missing_data(folder: Path) -> str:
    """The advice for a data folder that is missing or not preprocessed."""
    if folder.is_file():
        return (
            f"{folder} is a file; accepted: a preprocessed folder, made with: tsm-preprocess "
            f"--trainpref {folder} --split 0.8,0.1,0.1 --destdir DIR  (docs/data.md)"
        )
    state = "is not preprocessed (it has no meta.json)" if folder.is_dir() else "does not exist"
    return (
        f"data folder {folder} {state}; make it with: "
        f"tsm-preprocess --dataset ptb-char --from DIR --destdir {folder}  (or --trainpref FILE "
        "--validpref FILE)"
    )
