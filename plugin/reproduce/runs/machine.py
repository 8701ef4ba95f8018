"""The hardware and versions of a run, for its summary; and a check of a part of a GPU."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from typing import Any

import torch

from .... import __version__
from ...common.processor import processor

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""Environment variable: the part of the GPU that a process gets under MPS."""
PRODUCTS = ((1400, 10_000, 400), (2048, 512, 78_400), (1024, 256, 78_400), (512, 128, 28_160))
"""Rows, columns and terms of products that were wrong on 62% of an H200 (torch 2.11, CUDA 13.0), the first also
on 37 and 16%."""


def hardware(device: torch.device) -> dict[str, Any]:
    """The name of the device, for a CPU the number of threads, and for a part of a GPU its percentage."""
    if device.type == "cuda":
        found = {"device": torch.cuda.get_device_name(device)}
        part = os.environ.get(PERCENTAGE)
        return found if part is None else {**found, "percentage": part}
    return {"device": processor(), "threads": torch.get_num_threads()}


def check_part(device: torch.device) -> None:
    """Raises a ValueError if this process has a part of the GPU on which torch's products are wrong."""
    part = os.environ.get(PERCENTAGE)
    if device.type == "cuda" and part is not None and (wrong := wrong_products(device)):
        raise ValueError(
            f"on {part}% of this GPU ({PERCENTAGE}) torch's own matrix products are wrong, for example "
            f"{wrong[0]}; try another percentage (50 and 8 were right on an H200), or run without MPS"
        )


def wrong_products(
    device: torch.device,
    sizes: Iterable[tuple[int, int, int]] = PRODUCTS,
    dtype: torch.dtype = torch.bfloat16,
) -> list[str]:
    """The products that are not finite, or differ from sums that do not use a matrix product (about 8 x 8
    elements of each are compared)."""
    generator = torch.Generator(device).manual_seed(0)
    wrong = []
    for rows, columns, terms in sizes:
        a, b = (
            torch.randn(n, terms, device=device, generator=generator).to(dtype)
            for n in (rows, columns)
        )
        found = torch.matmul(a, b.t())
        few = found[:: rows // 8, :: columns // 8].float()
        exact = (a[:: rows // 8, None].float() * b[None, :: columns // 8].float()).sum(-1)
        error = (few - exact).abs().max() / exact.abs().max()
        if not (found.isfinite().all() and error < 0.02):
            wrong.append(f"{rows} x {terms} times {terms} x {columns}")
    return wrong


def versions() -> dict[str, str]:
    found = {"tsm": __version__, "torch": torch.__version__, "python": platform.python_version()}
    return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})
