"""The device of a command (the requested one, or else a GPU if there is one) and the backends of a layer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BACKENDS = ("auto", "reference", "fused")
"""The accepted values of `backend`, which selects what runs the recurrence of a layer."""


def choose_device(device: str = "", cpu: bool = False, own: int | None = None) -> torch.device:
    """The device for --device and --cpu; an error if the requested one is not available.

    own: the number of this process on its machine, which selects its GPU.
    """
    import torch

    if device and not re.fullmatch(r"cpu|cuda(:\d{1,4})?", device):
        raise ValueError(f"--device is {device}; accepted: cpu, cuda, cuda:N")
    if cpu and device not in ("", "cpu"):
        raise ValueError(f"--cpu and --device {device} were both given; accepted: one of them")
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if cpu or device == "cpu" or not (device or there):
        return torch.device("cpu")
    if not there:
        why = "this torch is built without CUDA" if not torch.version.cuda else "torch sees no GPU"
        raise ValueError(f"--device {device}: {why}; accepted here: cpu")
    if ":" not in device:
        if own is not None and own >= there:
            raise ValueError(
                f"process {own} of this machine has no GPU of its own; accepted: at most {there} "
                "processes, or --cpu"
            )
        return torch.device("cuda", own or 0)
    if own is not None:
        raise ValueError(f"--device {device} for several processes; accepted: cuda, cpu")
    found = torch.device(device)
    if found.index >= there:
        raise ValueError(f"--device {device}: accepted here are cuda:0 to cuda:{there - 1} and cpu")
    return found
