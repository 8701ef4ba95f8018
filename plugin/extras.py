"""Packages that only some of tsm needs: the extras of pyproject.toml that bring them."""

from __future__ import annotations

EXTRAS = {
    "train": ("torch", "tqdm", "scipy", "matplotlib", "sentencepiece", "tensorboard"),
    "export": ("onnx", "onnxruntime", "safetensors"),
}


def extra_of(module: str) -> str | None:
    """The extra that brings a package, if one of ours does."""
    root = module.partition(".")[0]
    return next((extra for extra, names in EXTRAS.items() if root in names), None)


def how_to_install(extra: str) -> str:
    """What to run for an extra. tsm is on no index, so that it is installed from its source tree.

    In brackets: who pastes the whole line must not install packages called `in`, `source` and `tree`.
    """
    return f"pip install '.[{extra}]' (in the source tree)"
