"""Predictions for texts and sequences, as the rows that tsm-predict writes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..command.command import UsageError
from ..common.lazy import np

if TYPE_CHECKING:
    from ..loaded.model import LoadedModel

Encode: TypeAlias = "Callable[[str], np.ndarray]"


class Item(NamedTuple):
    """kind, name: the column and value that identify the item. x: int64 [T] or float32 [T,I]. dt: [T] or
    None."""

    kind: str
    name: Any
    x: np.ndarray
    dt: np.ndarray | None = None


class Predictor:
    """predictor(items) returns the outputs of each item: [1,C], or [T,C] for a stepwise model.

    encode: text on one line -> tokens int64 [T], with T = 0 if it has no words; None if inputs are floats.
    width, columns: the row width of float inputs, and their column names in training (() if unknown).
    names: names of the outputs.
    """

    def __init__(self, model: LoadedModel, limit: int | None) -> None:
        if model.family == "lm":
            raise UsageError(
                f"{model.path} is a language model; accepted: a classifier or tagger (tsm-generate)"
            )
        self.model = model
        self.stepwise = model.family == "tagger"
        self.classes = model.targets is None
        self.names = model.targets or model.labels or [str(i) for i in range(model.output_size)]
        self.width = model.input_size or 0
        self.columns = model.columns or ()
        self.encode: Encode | None = None
        if model.input_size is None:
            self.encode = encoder(model, limit or model.reads)

    def __call__(self, items: Sequence[Item]) -> list[np.ndarray]:
        dts = [item.dt for item in items if item.dt is not None and self.model.takes_dt]
        found = self.model.run([item.x for item in items], dts or None)
        return [np.atleast_2d(outputs) for outputs in found]

    def row(self, output: np.ndarray) -> dict[str, Any]:
        """The row to write for one output [C]."""
        wide = output.astype(np.float64)
        if not self.classes:
            return {"values": dict(zip(self.names, wide.tolist(), strict=True))}
        shares = np.exp(wide - wide.max())
        shares /= shares.sum()
        best = int(shares.argmax())
        return {
            "label": self.names[best],
            "probability": float(shares[best]),
            "probabilities": dict(zip(self.names, shares.tolist(), strict=True)),
        }

    def silence(self) -> dict[str, Any]:
        """The row for an item without input."""
        none = dict.fromkeys(self.names)
        if not self.classes:
            return {"values": none}
        return {"label": None, "probability": None, "probabilities": none}


def encoder(model: LoadedModel, limit: int | None) -> Encode:
    """Text on one line -> tokens."""
    vocab, tokenizer = model.vocab, model.tokenizer

    def encode(text: str) -> np.ndarray:
        found = [] if tokenizer.is_empty(text) else vocab.ids(tokenizer.line_symbols(text))
        return np.array(found[:limit], dtype=np.int64)

    return encode


def open_predictor(args: argparse.Namespace) -> Predictor:
    """Opens a checkpoint on the requested device, or a .tsm file."""
    path = Path(args.model)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        accepted = f"{path}/checkpoint_best.pt" if path.is_dir() else "a checkpoint"
        raise FileNotFoundError(f"{path} {what}; accepted: {accepted}, or a .tsm file")
    from ..loaded.load import is_checkpoint, load

    if is_checkpoint(path):
        from ..common.device import choose_device

        return Predictor(load(path, str(choose_device(args.device, args.cpu))), args.max_length)
    device = "cuda" if args.device.startswith("cuda") and not args.cpu else "cpu"
    return Predictor(load(path, device, threads=args.threads), args.max_length)
