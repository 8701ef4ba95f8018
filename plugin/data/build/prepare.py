"""Turns a known data set into a preprocessed folder, with the default settings of `tsm-preprocess`."""

from __future__ import annotations

from pathlib import Path

from .... import __version__
from ..checksums import write_checksums
from ..datasets.common import TextSource
from ..meta import Meta
from ..staged_folder import SUMS, staged_folder
from .images import IMAGE_DATASETS, build_images
from .options import Options
from .reviews import build_reviews
from .sources import TEXT_DATASETS
from .text import build_text


def prepare(dataset: str, root: Path, dest: Path, options: Options, glove: bool = True) -> Meta:
    """Make the folder `dest` from the official files in `root`."""
    with staged_folder(dest) as stage:
        if dataset == "imdb":
            meta = build_reviews(root, stage, options, root if glove else None)
        elif dataset in IMAGE_DATASETS:
            meta = build_images(dataset, root, stage, options)
        else:
            meta = build_text(TEXT_DATASETS[dataset](root), stage, options)
        return finish(meta, stage)


def prepare_text(source: TextSource, dest: Path, options: Options) -> Meta:
    """Builds the dataset folder `dest` from a text."""
    with staged_folder(dest) as stage:
        return finish(build_text(source, stage, options), stage)


def finish(meta: Meta, stage: Path) -> Meta:
    """Writes meta.json, which marks the folder as preprocessed, and the checksums of all files."""
    meta.tsm_version = __version__
    meta.files = sorted([*(path.name for path in stage.iterdir()), SUMS])
    meta.save(stage)
    write_checksums(stage, meta)
    return meta
