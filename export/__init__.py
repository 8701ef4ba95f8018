"""Exporters: convert a trained model to files that run outside PyTorch.

    from tsm.export import export
    report = export("runs/lm/checkpoint_best.pt", "model.onnx", format="onnx", recurrence="scan")

Names are looked up on first use: `import tsm.export` loads neither torch nor onnx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .entry import export
    from .existing import verify_file
    from .onnx.module import module_to_onnx
    from .verify.report import Report
    from .verify.verify import VerifyError

_HOME = {
    "export": ".entry",
    "module_to_onnx": ".onnx.module",
    "Report": ".verify.report",
    "VerifyError": ".verify.verify",
    "verify_file": ".existing",
}

__all__ = ["Report", "VerifyError", "export", "module_to_onnx", "verify_file"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name], __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
