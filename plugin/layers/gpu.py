"""A GPU: whether the compiled core has kernels for it, and what every call needs to know of it."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ..common.torch_private import matmul_precision, raw_stream
from .core import DTYPES, _core

COPIED = (torch.float32, torch.bfloat16)
"""The dtypes that copies and products take."""
UNIT_MULTIPLE = 8  # the kernels and fast matrix products read 16 bytes at a time
OLDEST = (8, 0)
"""The oldest compute capability that the kernels are compiled for."""


def why_not(dtype: torch.dtype, device: torch.device) -> str:
    """Why there are no kernels for this GPU and dtype; "" if there are."""
    if not _core.with_cuda:
        return "the compiled core was built without CUDA"
    if torch.cuda.is_available():
        found = torch.cuda.get_device_capability(device)
        if not _core.cuda_device_count():
            return "the core's CUDA runtime finds no device: is the driver older than the CUDA that built it?"
        if found < OLDEST:
            return "compute capability {}.{}; the kernels need {}.{} or newer".format(
                *found, *OLDEST
            )
        if not _core.recurrence_cuda_path(device=_ordinal(device)):
            return "this build has no code for compute capability {}.{}".format(*found)
        if not _core.has_products():
            return "torch has not loaded cublasLt, which computes the products"
    if dtype not in COPIED:
        names = ", ".join(DTYPES[kind] for kind in COPIED)
        return f"dtype {dtype} has no kernel on cuda (available: {names})"
    return ""


@lru_cache
def has_kernels(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the core has kernels for arrays of this dtype on this device."""
    return device.type == "cuda" and _core is not None and not why_not(dtype, device)


def widened(width: int) -> int:
    """The width rounded up to 16 bytes of bfloat16."""
    return -(-width // UNIT_MULTIPLE) * UNIT_MULTIPLE


def is_dense(tensor: Tensor) -> bool:
    """Contiguous, not a lazily negated view, and aligned to 16 bytes."""
    return tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() % 16 == 0


def dense(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it for which `is_dense` is true."""
    if is_dense(tensor):
        return tensor
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


def allows_tf32(dtype: torch.dtype) -> bool:
    """Whether products of this dtype may round to tf32: those of float32, if torch allows it."""
    return dtype == torch.float32 and matmul_precision() == "tf32"


def current_stream(device: torch.device) -> int:
    return raw_stream(device.index)


def _ordinal(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index
