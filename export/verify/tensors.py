"""Compares every number in a file with the model's: all of them, not a sample.

A float tensor must equal the model's, rounded to its type, bit for bit. An 8-bit tensor must be within half a
step of it: |scale * integer - w| <= scale (1/2 + 127 * 2^-24), where the second term is the error of dividing
by the scale in float32; and each scale must fit the largest magnitude of its row or column.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from ..common.formats import Stored
from .report import Check

HALF_STEP = 0.5 + 127 * 2.0**-24
HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
SCALE_ERROR = 2.0**-23  # relative error of a scale: it is divided by 127 in float32


def paired(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> Iterable[Stored]:
    """Pairs tensors by name; ValueError if a name occurs on one side only."""
    missing, strange = sorted(expected.keys() - found), sorted(found.keys() - expected)
    if missing or strange:
        raise ValueError(f"tensors {strange} are unexpected, {missing} are missing")
    return [Stored(name, found[name], expected[name]) for name in expected]


def check_stored(runner: str, pairs: Iterable[Stored], dtype: str) -> Check:
    """One check for all tensors of a file. dtype: the one stated in the file."""
    what, tensors, numbers, steps = "every tensor", 0, 0, 0.0
    wrong: list[str] = []
    try:
        found = list(pairs)
    except ValueError as wrong_names:
        return Check(runner, what, False, {}, str(wrong_names))
    for one in found:
        tensors, numbers = tensors + 1, numbers + one.expected.numel()
        fault, error = _compare(one, dtype)
        steps = max(steps, error)
        wrong += [f"{one.name}{fault}"] if fault else []
    note = f"{tensors} tensors, {numbers:,} numbers"
    note += f", at most {steps:.3f} of a step away" if steps else ", bit for bit"
    if not numbers:
        wrong.append("there are none")
    if wrong:
        note = f"{len(wrong)} of {tensors} differ: {'; '.join(wrong[:3])}"
    return Check(runner, what, not wrong, {}, note)


def _compare(one: Stored, dtype: str) -> tuple[str, float]:
    """Returns (what is wrong or "", largest distance in steps of an 8-bit scale)."""
    found, expected = one.found.detach(), one.expected.detach()
    accepted = {expected.dtype}
    if expected.is_floating_point():
        accepted = {torch.float32, HALVES.get(dtype, torch.float32)}
    if one.scale is None and found.dtype not in accepted:
        return f": {found.dtype} in a file of {dtype}", 0.0
    if found.shape != expected.shape:
        return f": shape {list(found.shape)}, expected {list(expected.shape)}", 0.0
    if one.scale is not None:
        return _compare_integers(found, expected.double(), one.scale)
    wanted = expected.to(found.dtype)
    differs = _bits(found) != _bits(wanted)
    return (_where(differs, found, wanted) if bool(differs.any()) else ""), 0.0


def _compare_integers(found: Tensor, expected: Tensor, scale: Tensor) -> tuple[str, float]:
    if found.dtype != torch.int8:
        return f": {found.dtype}, expected torch.int8", 0.0
    wide = scale.double().broadcast_to(expected.shape)
    # A row or column of zeros may have any scale; for the others it is their largest magnitude / 127.
    axis = [i for i, size in enumerate(scale.shape) if size == 1]
    most = expected.abs().amax(dim=axis, keepdim=True)
    bad = (most > 0) & ((scale.double() * 127 - most).abs() > SCALE_ERROR * most)
    if bool(bad.any()):
        return ".scale" + _where(bad, scale, most / 127), 0.0
    value = found.double() * wide
    away = torch.where(wide > 0, (value - expected).abs() / wide, (value - expected).abs())
    worst = float(away.max()) if away.numel() else 0.0
    return (_where(away > HALF_STEP, value, expected) if worst > HALF_STEP else ""), worst


def _bits(value: Tensor) -> Tensor:
    """The bytes of a tensor, so that -0 differs from 0, and NaN can be compared."""
    # A copy: in a contiguous tensor, a dimension of size 1 may have any stride.
    dense = value.clone(memory_format=torch.contiguous_format)
    return dense.reshape(*value.shape, 1).view(torch.uint8)


def _where(wrong: Tensor, found: Tensor, expected: Tensor) -> str:
    at = [int(i) for i in wrong.nonzero()[0]][: found.dim()]
    count = int(wrong.sum())
    values: Any = (found[tuple(at)].item(), expected[tuple(at)].item())
    return f" at {at} is {values[0]:.9g}, expected {values[1]:.9g} ({count:,} such)"
