"""Checks that every value of a checkpoint is one that training writes; errors name the field.

check_plain    only plain values and ordinary tensors (for every file)
check_config   the parts of `config` have the right types (for every file)
check_like     a value compared with the one that this run would write (for resuming)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

LARGEST = 2**53  # the largest integer accepted; beyond it, floats cannot represent every integer
DEEPEST = 32
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.uint8, torch.bool,
)  # fmt: skip
CONFIG = {
    "model": dict,
    "task": dict,
    "text": dict,
    "optimizer": dict,
    "lr_scheduler": dict,
    "loop": dict,
    "criterion": str,
    "tsm_version": str,
}
NAMES = {
    "model": ("arch", "model"),
    "task": ("name",),
    "text": ("dictionary", "tokenizer"),
    "optimizer": ("name",),
    "lr_scheduler": ("name",),
}
# Exceptions that torch and Python raise for an unusable value.
UNUSABLE = (
    TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, MemoryError, AssertionError,
)  # fmt: skip


def refuse(path: str | Path, where: str, value: Any, accepted: str) -> ValueError:
    """The error message: file, field, value, what is accepted."""
    if isinstance(value, Tensor):
        shown = f"a tensor, {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    else:
        shown = repr(value) if len(repr(value)) < 60 else f"{repr(value)[:57]}..."
    return ValueError(f"{path}: {where} is {shown}; accepted: {accepted}")


@contextmanager
def named(path: str | Path, where: str) -> Iterator[None]:
    """Reports errors inside this block as errors in that field."""
    try:
        yield
    except UNUSABLE as error:
        why = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"{path}: {where} cannot be used ({why})") from error


def check_plain(value: Any, path: str | Path, where: str = "checkpoint", depth: int = 0) -> None:
    """Accepts dicts, lists, numbers, strings, None, and tensors whose data is completely in the file; in
    `config` no tensors."""
    if depth > DEEPEST:
        raise ValueError(f"{path}: {where} is nested too deeply; accepted: {DEEPEST} levels")
    tensors = not where.startswith("config.")
    if isinstance(value, Tensor) and tensors:
        _check_plain_tensor(value, path, where)
    elif isinstance(value, dict):
        for key, part in value.items():
            if type(key) not in (str, int):
                raise refuse(path, f"a name in {where}", key, "a text or an integer")
            check_plain(part, path, _inside(where, key), depth + 1)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            check_plain(part, path, f"{where}[{i}]", depth + 1)
    elif value is not None and type(value) not in (bool, int, float, str):
        raise refuse(path, where, value, "a plain value" + " or a tensor" * tensors)


def _check_plain_tensor(value: Tensor, path: str | Path, where: str) -> None:
    ordinary = value.layout == torch.strided and value.device.type == "cpu"
    if not ordinary or value.is_quantized or value.dtype not in DTYPES:
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        raise refuse(path, where, value, f"a dense tensor of {kinds}")
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise refuse(path, where, value, "as many numbers as the file holds")


def check_config(config: Mapping[str, Any], path: str | Path) -> None:
    """Checks the types of the parts and their names. Commands report missing parts themselves."""
    for part, kind in CONFIG.items():
        value = config.get(part, kind())
        if not isinstance(value, kind):
            raise refuse(path, f"config.{part}", value, "a table" if kind is dict else "a text")
    for part, names in NAMES.items():
        for name in names:
            value = config.get(part, {}).get(name, "")
            if type(value) is not str:
                raise refuse(path, f"config.{part}.{name}", value, "a text")


def check_tensor(value: Any, own: Tensor, path: str | Path, where: str) -> None:
    """Checks that the value has the type and shape of `own` and that every number is finite."""
    kind = f"a tensor, {str(own.dtype).removeprefix('torch.')} {list(own.shape)}"
    if not isinstance(value, Tensor) or (value.dtype, value.shape) != (own.dtype, own.shape):
        raise refuse(path, where, value, kind)
    check_finite(value, path, where)


def check_finite(value: Tensor, path: str | Path, where: str) -> None:
    if value.is_floating_point() and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{path}: {where} has numbers that are not finite; accepted: finite ones")


def check_like(value: Any, own: Any, path: str | Path, where: str) -> None:
    """Checks that a value may replace `own`: type, names, length, dtype, shape, finite numbers.

    Integers must be 0 or more. If `own` is None, a number is also accepted.
    """
    if isinstance(own, Tensor):
        check_tensor(value, own, path, where)
    elif isinstance(own, dict):
        if not isinstance(value, dict) or set(value) != set(own):
            raise refuse(path, where, value, f"a table of {', '.join(map(str, own)) or 'nothing'}")
        for key in own:
            check_like(value[key], own[key], path, _inside(where, key))
    elif isinstance(own, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(own):
            raise refuse(path, where, value, f"{len(own)} values")
        for i, (part, mine) in enumerate(zip(value, own, strict=True)):
            check_like(part, mine, path, f"{where}[{i}]")
    elif isinstance(own, (bool, str)):
        if type(value) is not type(own):
            raise refuse(path, where, value, "a text" if isinstance(own, str) else "True or False")
    elif isinstance(own, int):
        if type(value) is not int or not 0 <= value < LARGEST:
            raise refuse(path, where, value, "an integer, 0 or more")
    elif own is None and value is None:
        return
    elif type(value) not in (int, float) or not abs(value) < (
        LARGEST if type(value) is int else math.inf
    ):
        raise refuse(path, where, value, "a finite number" + (", or None" if own is None else ""))


def _inside(where: str, key: Any) -> str:
    return str(key) if where == "checkpoint" else f"{where}.{key}"
