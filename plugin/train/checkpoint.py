"""Checkpoints: a dict of plain values and tensors in one file, written atomically.

    model        the weights to evaluate and export (NT-ASGD: the averages)
    config       the settings that rebuild model, task and loop
    optimizer    its state
    train_state  the progress of training: counters, best value, generators, carried state, ...
    assets       files of the text task (dict.txt), name -> bytes as a uint8 tensor

Nothing is executed on loading (`weights_only=True`). The file is a zip archive. Its checksums are verified
before anything is read from it. Every value is checked (checkpoint_check.py).
"""

from __future__ import annotations

import errno
import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from ..common.atomic import NotDurable, atomic_file
from ..common.file_kinds import CHECKPOINT, wrong_kind
from ..config import check_types
from ..data.labels import COLUMNS, LABELS, TARGETS, other_targets
from .checkpoint_check import check_config, check_plain, check_tensor, named, refuse

FORMAT = "tsm-checkpoint"
VERSION = 1
# Exceptions that torch.load may raise for a damaged file.
DAMAGED = (
    RuntimeError,
    pickle.UnpicklingError,
    EOFError,
    LookupError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
PARTS = ("model", "config", "optimizer", "train_state")
# Settings that may change when resuming; all others define the model.
FREE = {"backend", "dropout", "dropouth", "dropouti", "dropoute", "wdrop"}
# The same for fine-tuning, which has no optimizer state to match.
FREE_AT_START = FREE | {"freeze_recurrent"}


class Loaded(NamedTuple):
    """A model with its weights, ready to evaluate, and the settings of its training."""

    model: Any
    config: dict[str, Any]


def load_checkpoint(path: str | Path, device: str | torch.device = "cpu") -> Loaded:
    """model, config = load_checkpoint("runs/lm/checkpoint_best.pt")

    path: of the checkpoint. device: where the model is put.
    """
    checkpoint = read_checkpoint(path)
    return Loaded(model_of(checkpoint, path).to(device).eval(), checkpoint["config"])


def model_of(checkpoint: dict[str, Any], path: str | Path) -> Any:
    """The model of a checkpoint, with its weights."""
    from ..models import build_from_config
    from ..models.build import MODELS

    config, weights = _model_config(checkpoint, path), checkpoint["model"]
    _check_sizes(config, weights, path)
    try:
        with named(path, "config.model"):
            check_types(MODELS.get(config.get("model", "")).Config, config)
            with torch.device("meta"):  # shapes only: sizes in the config must match the tensors
                check_weights(build_from_config(config), weights, path)
            model = build_from_config(config)
    except ValueError as error:
        if str(error).startswith(str(path)):
            raise
        raise ValueError(
            f"{path}: {error} (was it trained with --user-dir? then give the same folder: --user-dir DIR, in "
            "Python user_dir= of tsm.load)"
        ) from error
    model.load_state_dict(weights)
    return model


def _model_config(checkpoint: dict[str, Any], path: str | Path) -> dict[str, Any]:
    config = checkpoint["config"].get("model")
    if not isinstance(config, dict):
        raise refuse(path, "config.model", config, "the settings of a model")
    return config


def _check_sizes(config: dict[str, Any], weights: dict[str, Any], path: str | Path) -> None:
    """No size in the config may exceed the largest tensor: a malicious config could otherwise make the model
    huge."""
    shapes = [size for value in weights.values() for size in getattr(value, "shape", ())]
    most = max([len(weights), *shapes], default=0)
    for name, value in config.items():
        sizes = value if isinstance(value, (list, tuple)) else [value]
        if any(type(size) is int and size > most for size in sizes):
            raise refuse(
                path,
                f"config.model.{name}",
                value,
                f"at most {most:,}, the size of its largest tensor",
            )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The dict in the file, with tensors on the CPU. Errors are one sentence."""
    path = Path(path)
    if path.exists() and (wrong := wrong_kind(path, CHECKPOINT)):
        raise ValueError(wrong)
    if not path.is_file():
        raise FileNotFoundError(f"checkpoint {path} does not exist")
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [i.filename for i in archive.infolist() if i.file_size != i.compress_size]
            if packed:  # torch never compresses entries
                raise ValueError(f"{packed[0]} is packed")
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"the checksum of {broken} is wrong")
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (*DAMAGED, OSError) as error:
        # Other OSErrors come from the disk. A damaged archive may seek to a negative offset (EINVAL), and
        # damaged bzip2 data raises an OSError without errno.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise OSError(error.errno, error.strerror, str(path)) from error
        reason = next(iter(str(error).splitlines()), "it ends too early")
        raise ValueError(f"{path} is not a tsm checkpoint, or is damaged ({reason})") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path} is not a tsm checkpoint (it has no format {FORMAT!r})")
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        raise refuse(path, "version", version, str(VERSION))
    for part in PARTS:
        if not isinstance(found.get(part), dict):
            raise ValueError(f"{path} has no {part!r}; accepted: {', '.join(PARTS)}")
    check_plain(found, path)
    check_config(found["config"], path)
    return found


def to_bytes(checkpoint: dict[str, Any]) -> bytes:
    """The file's contents. Serialises before the file is opened, so that only writing the bytes can fail."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "version": VERSION, **checkpoint}, buffer)
    return buffer.getvalue()


def write_checkpoint(data: bytes, path: Path) -> None:
    """Replaces `path` by `data` atomically. If writing fails, the old file stays unchanged."""
    try:
        with atomic_file(path) as file:
            file.write(data)
    except OSError as error:
        what = "the checkpoint was not written, and the previous one is unchanged"
        if isinstance(error, NotDurable):
            what = "the checkpoint was written, but a crash of the machine may undo that"
        raise OSError(error.errno, f"{error.strerror}; {what}", str(path)) from error


def load_weights(model: nn.Module, weights: dict[str, Any], path: str | Path) -> None:
    """Copies the weights into the model. Shapes must match."""
    check_weights(model, weights, path)
    model.load_state_dict(weights)


def check_weights(model: nn.Module, weights: dict[str, Any], path: str | Path) -> None:
    """Raises a ValueError that names the first tensor with a different shape or type, or with NaN in it."""
    own = model.state_dict()
    for name in [*own, *weights]:
        here = tuple(own[name].shape) if name in own else None
        there = tuple(getattr(weights[name], "shape", ())) if name in weights else None
        if here != there:
            raise ValueError(
                f"{path} does not fit the model: {name} has shape {there} in the file and {here} "
                "here (None: it does not exist)"
            )
        check_tensor(weights[name], own[name], path, f"model.{name}")


def check_model(
    checkpoint: dict[str, Any], here: dict[str, Any], path: str | Path, free: Set[str] = FREE
) -> None:
    """Raises ValueError unless the checkpoint's model is the one that `here` (a model.config) describes."""
    there = _model_config(checkpoint, path)
    differing = [
        name
        for name in dict.fromkeys([*here, *there])
        if name not in free and here.get(name) != there.get(name)
    ]
    if differing:
        pairs = ", ".join(f"{n} = {there.get(n)!r} ({here.get(n)!r} here)" for n in differing[:4])
        advice = "give another --save-dir, or the settings that it was trained with"
        if free == FREE_AT_START:
            advice = (
                "give the settings that it was trained with (--config config.yaml of its folder)"
            )
        if "vocab_size" in differing and checkpoint["config"].get("text"):
            advice += (
                "; for the same symbols, preprocess with its dict.txt (tsm-preprocess --srcdict)"
            )
        raise ValueError(f"checkpoint {path} holds another model: {pairs}; {advice}")


def check_dictionary(checkpoint: dict[str, Any], here: str | None, path: str | Path) -> None:
    """Raises ValueError unless the checkpoint was made with the dictionary whose fingerprint is `here`."""
    there = checkpoint["config"].get("text", {}).get("dictionary")
    if there != here:
        raise ValueError(
            f"checkpoint {path} was trained with a dictionary other than the data's (fingerprint "
            f"{str(there)[:12]}, here {str(here)[:12]}); preprocess with its dict.txt "
            "(tsm-preprocess --srcdict), or give another --save-dir"
        )


def renamed(checkpoint: dict[str, Any], here: Mapping[str, bytes]) -> list[str]:
    """The names that the checkpoint's data and a task have for inputs, labels and targets, where they differ.
    here: the task's files; names that either does not have are not compared."""
    found, assets = [], checkpoint.get("assets")
    for what, file in (("inputs", COLUMNS), ("labels", LABELS), ("targets", TARGETS)):
        there = assets.get(file) if isinstance(assets, dict) else None
        if not isinstance(there, torch.Tensor) or file not in here:
            continue
        old, new = (_names(data) for data in (there.numpy().tobytes(), here[file]))
        if other_targets(old, new) if file == TARGETS else old != new:
            found.append(f"{what} {_in_one_line(old)} (here {_in_one_line(new)})")
    return found


def _names(data: bytes) -> list[str]:
    return data.decode(errors="replace").split("\n")[:-1]


def _in_one_line(names: list[str]) -> str:
    text = ", ".join(names)
    return text if len(text) < 100 else f"{text[:97]}..."
