"""Recognises the kind of a model file and opens it."""

from __future__ import annotations

from pathlib import Path

from .model import LoadedModel

ZIP = b"PK\x03\x04"  # PyTorch's files


def load(
    path: str | Path,
    device: str = "cpu",
    *,
    dtype: str = "float32",
    threads: int = 1,
    user_dir: str | Path | None = None,
) -> LoadedModel:
    """A trained model from a checkpoint of tsm-train (needs torch) or a .tsm file (needs only numpy).

    >>> model = tsm.load("model.tsm")                         # path: also runs/lm/checkpoint_best.pt
    >>> model.generate("the old sailor", 40, seed=1)          # language models: text
    >>> model.score("the old sailor slept").perplexity
    >>> model.predict(["good", "bad"]).labels                 # classifiers: names of classes

    device: "cpu", "cuda". dtype, threads: only for .tsm files, as in `tsm.runtime.Model.load`. user_dir: the
    --user-dir that a checkpoint was trained with, whose Python files are imported; a .tsm file needs none.
    """
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"{place} is a folder; accepted: a checkpoint (.pt) in it, or a .tsm file")
    if is_checkpoint(place):
        if dtype != "float32" or threads != 1:
            raise ValueError(
                f"dtype = {dtype!r}, threads = {threads}: {place} is a checkpoint; accepted: with .tsm files"
            )
        from ..command.flags import load_plugins
        from ..common.device import choose_device
        from .checkpoint import CheckpointModel

        load_plugins(user_dir)
        return CheckpointModel(place, str(choose_device(str(device))))
    from .tsm_file import TsmFileModel

    return TsmFileModel(place, device, dtype, threads)


def is_checkpoint(path: Path) -> bool:
    """Whether this is a PyTorch file."""
    with open(path, "rb") as file:
        return file.read(len(ZIP)) == ZIP
