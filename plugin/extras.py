"""Optional packages, and the extras of pyproject.toml that install them."""

from __future__ import annotations

EXTRAS = {
    "train": ("torch", "tqdm", "scipy", "matplotlib", "sentencepiece", "tensorboard", "yaml"),
    "export": ("onnx", "onnxscript", "onnxruntime", "safetensors"),
    "serve": ("uvicorn", "httptools", "uvloop", "websockets", "prometheus_client"),
}


def extra_of(module: str) -> str | None:
    """The extra that installs a package, if there is one."""
    root = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if root in names), None)


def how_to_install(extra: str) -> str:
    """The command that installs an extra. pip keeps the installed tsm, wherever it came from."""
    return f"pip install 'timescale-models[{extra}]'"
