"""Packages that only some of tsm needs: the extras of pyproject.toml that bring them."""

from __future__ import annotations

EXTRAS = {
    "train": ("torch", "tqdm", "scipy", "matplotlib", "sentencepiece", "tensorboard", "yaml"),
    "export": ("onnx", "onnxscript", "onnxruntime", "safetensors"),
    "serve": ("uvicorn", "httptools", "uvloop", "websockets", "prometheus_client"),
}


def extra_of(module: str) -> str | None:
    """The extra that brings a package, if one of ours does."""
    root = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if root in names), None)


def how_to_install(extra: str) -> str:
    """What to run for an extra: pip takes tsm itself as it is installed, from wherever that was."""
    return f"pip install 'timescale-models[{extra}]'"
