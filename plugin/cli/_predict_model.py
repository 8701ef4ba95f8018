"""A model that answers tsm-predict: a checkpoint in PyTorch, or a .tsm file in the runtime."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..command.command import UsageError
from ..data.labels import LABELS, TARGETS, load_labels

if TYPE_CHECKING:
    from ..data import Tokenizer, Vocab
    from ._predict_input import Item

Encode = Callable[[str], np.ndarray]


class Predictor:
    """predictor(items) -> for each the outputs [1,C], or of a stepwise model [T,C].

    encode: text -> tokens int64 [T], T = 0 where there is no word; None for models of numbers. width: of their
    rows.
    names: of the outputs; classes: whether these are classes, else numbers.
    """

    encode: Encode | None = None
    width = 0
    stepwise = False

    def __init__(self, assets: Mapping[str, bytes | None], outputs: int, path: str) -> None:
        found = {name: data for name, data in assets.items() if data}
        self.classes = TARGETS not in found
        names = found.get(LABELS if self.classes else TARGETS)
        where = f"{path}: {LABELS if self.classes else TARGETS}"
        self.names = (
            [str(i) for i in range(outputs)]
            if names is None
            else load_labels(names, where, outputs)
        )

    def __call__(self, items: Sequence[Item]) -> list[np.ndarray]:
        raise NotImplementedError

    def row(self, output: np.ndarray) -> dict[str, Any]:
        """What is written for one output [C]."""
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
        """What is written where there is nothing to read."""
        none = dict.fromkeys(self.names)
        if not self.classes:
            return {"values": none}
        return {"label": None, "probability": None, "probabilities": none}


def open_predictor(args: argparse.Namespace) -> Predictor:
    """By what the file is: a checkpoint is a zip archive."""
    path = Path(args.model)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; accepted: a checkpoint, or a .tsm file")
    return (Checkpoint if zipfile.is_zipfile(path) else Runtime)(args)


def encoder(vocab: Vocab, tokenizer: Tokenizer, limit: int | None) -> Encode:
    """Text on one line -> tokens."""

    def encode(text: str) -> np.ndarray:
        found = [] if tokenizer.is_empty(text) else vocab.ids(tokenizer.line_symbols(text))
        return np.array(found[:limit], dtype=np.int64)

    return encode


def refuse_lm(family: str, path: str) -> None:
    if family == "lm":
        raise UsageError(
            f"{path} is a language model; accepted: a classifier or tagger (tsm-generate)"
        )


class Runtime(Predictor):
    """A .tsm file: one stream per item, all in one call."""

    def __init__(self, args: argparse.Namespace) -> None:
        from ...runtime import Model
        from .stream import text_side

        device = "cuda" if args.device.startswith("cuda") and not args.cpu else "cpu"
        self.model = Model.load(args.model, device=device, threads=args.threads)
        refuse_lm(self.model.family, args.model)
        assets = {name: self.model.asset(f"text.{name[:-4]}") for name in (LABELS, TARGETS)}
        super().__init__(assets, self.model.output_size, args.model)
        self.stepwise = self.model.family == "tagger"
        if not self.model.takes_tokens:
            self.width = self.model.input_size
            return
        vocab, tokenizer = text_side(self.model, args.model)
        if vocab is None or tokenizer is None:
            raise UsageError(f"{args.model} has no dictionary: it was not trained on text")
        self.encode = encoder(vocab, tokenizer, args.max_length)

    def __call__(self, items: Sequence[Item]) -> list[np.ndarray]:
        streams = [self.model.create_stream() for _ in items]
        dts = None
        if self.model.takes_dt and items[0].dt is not None:
            dts = [item.dt for item in items]
        chunks = [item.x for item in items]
        found = self.model.feed_many(streams, chunks, dts, last_only=not self.stepwise)
        return [output if self.stepwise else output[None] for output in found]


class Checkpoint(Predictor):
    """A checkpoint: a padded batch in PyTorch."""

    def __init__(self, args: argparse.Namespace) -> None:
        from ..common.device import choose_device
        from ..train.objective import takes_dt
        from ..trained import open_trained

        self.device = choose_device(args.device, args.cpu)
        self.trained = trained = open_trained(args.model, self.device)
        self.model = trained.model
        refuse_lm(self.model.name, args.model)
        super().__init__(trained.assets, self.model.decoder.out_features, args.model)
        if trained.config.get("criterion") in ("mse", "sigmoid_mse"):
            self.classes = False
        self.stepwise = self.model.name == "tagger"
        self.takes_dt = takes_dt(self.model)
        task = trained.config["task"]
        self.fixed = task.get("max_length") if task.get("fixed_length") else None
        if self.model.embed is None:
            self.width = self.model.layers[0].input_size
            return
        limit = args.max_length or task.get("max_length")
        self.encode = encoder(trained.vocab, trained.tokenizer, limit)

    def __call__(self, items: Sequence[Item]) -> list[np.ndarray]:
        import torch

        lengths = [len(item.x) for item in items]
        width = self.fixed or max(lengths)
        pad = 0 if self.encode is None else len(self.trained.vocab)
        x = np.full((len(items), width, *items[0].x.shape[1:]), pad, items[0].x.dtype)
        dt = np.ones((len(items), width), np.float32)
        for row, item in enumerate(items):
            x[row, : lengths[row]] = item.x
            if item.dt is not None:
                dt[row, : lengths[row]] = item.dt
        times = None
        if self.takes_dt and items[0].dt is not None:
            times = torch.from_numpy(dt).to(self.device)
        with torch.inference_mode():
            logits, _ = self.model(
                torch.from_numpy(x).to(self.device),
                torch.tensor(lengths, device=self.device),
                None,
                times,
            )
        found = logits.float().cpu().numpy()
        if not self.stepwise:
            return [output[None] for output in found]
        return [output[:length] for output, length in zip(found, lengths, strict=True)]
