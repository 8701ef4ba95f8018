"""The part of tsm-doctor that needs torch: devices, backends, and a self-test of the fused layers."""

from __future__ import annotations

from typing import Any

import torch

from ..cells import get_cell, list_cells
from ..layers import Recurrent
from ..layers.choose import choose
from ..layers.core import _core, on_torchs_threads

DTYPES = (torch.float32, torch.bfloat16, torch.float64, torch.float16)
ALLOWED = 1e-4  # float32, 12 steps, gradients summed over a batch


def cuda() -> dict[str, Any]:
    """The CUDA version that torch was built for, and the GPUs it finds."""
    devices, problem = [], None
    if torch.version.cuda is None:
        problem = "this torch was built without CUDA"
    elif not torch.cuda.is_available():
        problem = "no driver or no GPU"
    else:
        count = torch.cuda.device_count()
        devices = [torch.cuda.get_device_name(i) for i in range(count)]
    paths = [path(i) for i in range(len(devices))]
    return {
        "built_for": torch.version.cuda,
        "devices": devices,
        "paths": paths,
        "problem": problem,
    }


def path(device: int) -> str:
    """Which kernels train layers on a GPU."""
    why = choose(get_cell("plstm"), torch.float32, torch.device("cuda", device)).why
    if why:
        return f"plain PyTorch: {why}"
    capability = "compute capability {}.{}".format(*torch.cuda.get_device_capability(device))
    return f"{capability}, {_core.recurrence_cuda_path(device=device)}"


def cpu_threads() -> dict[str, Any]:
    """The threads that training on the CPU uses."""
    return {"count": torch.get_num_threads(), "of_torch": on_torchs_threads}


def backends() -> list[dict[str, Any]]:
    """For every device and dtype: which cells run fused, and why the others do not."""
    rows = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        for dtype in DTYPES:
            fused, reasons = [], {}
            for name in list_cells():
                route = choose(get_cell(name), dtype, device)
                if route.fused:
                    fused.append(name)
                else:
                    reasons[name] = route.why
            rows.append(
                {
                    "device": device.type,
                    "dtype": str(dtype).removeprefix("torch."),
                    "fused": fused,
                    "reference": reasons,
                    "use": _use(device, fused, reasons),
                }
            )
    return rows


def _use(device: torch.device, fused: list[str], reasons: dict[str, str]) -> str:
    if device.type == "cuda" and not torch.cuda.is_available():
        return "- (torch sees no GPU)"
    if not fused:
        common = [r for r in reasons.values() if list(reasons.values()).count(r) > 1]
        return f"reference ({(common or list(reasons.values()))[0]})"
    rest = "".join(f"; reference: {name} ({why})" for name, why in reasons.items())
    return f"fused: {len(fused)} cells{rest}"


def self_test() -> list[dict[str, Any]]:
    """Compares every cell that runs fused here with the reference, using the same weights."""
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    return [
        _compare(name, device)
        for device in devices
        for name in list_cells()
        if choose(get_cell(name), torch.float32, torch.device(device)).fused
    ]


def _compare(name: str, device: str) -> dict[str, Any]:
    row: dict[str, Any] = {"cell": name, "device": device, "allowed": ALLOWED, "problem": None}
    try:
        difference = _difference(name, device)
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return {**row, "ok": False, "difference": None, "problem": problem}
    ok = difference <= ALLOWED  # False for NaN
    return {**row, "ok": ok, "difference": difference}


def _difference(name: str, device: str) -> float:
    """The largest |fused - reference| / (1 + |reference|) over y, last states and gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fused = Recurrent(name, 8, 16, backend="auto")
        x = torch.randn(3, 12, 8)
    fused = fused.to(device)
    plain = Recurrent(name, 8, 16, backend="reference").to(device)
    plain.load_state_dict(fused.state_dict())
    found = []
    for layer in (fused, plain):
        own = x.to(device).requires_grad_()
        y, state = layer(own)
        (y.square().sum() + sum(value.sum() for value in state.values())).backward()
        gradients = [t.grad for t in (own, *layer.parameters()) if t.grad is not None]
        found.append([t.detach() for t in (y, *state.values(), *gradients)])
    worst = [((a - b).abs() / (1 + b.abs())).max() for a, b in zip(*found, strict=True)]
    return float(torch.stack(worst).max())
