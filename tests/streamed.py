"""A model, its .tsm file and inputs, for the tests of the streaming runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cells import Cell

B, T = 4, 23
DTYPES = ("float32", "bfloat16", "int8")
KINDS = {
    "lm tokens": ("lm", dict(vocab_size=13, decoder_embed_dim=6)),
    "lm one-hot": ("lm", dict(vocab_size=13, decoder_embed_dim=0)),
    "classifier tokens": ("classifier", dict(vocab_size=13, num_classes=3, decoder_embed_dim=6)),
    "tagger values": ("tagger", dict(input_size=5, num_classes=4)),
    "tagger one-hot": ("tagger", dict(vocab_size=13, num_classes=4, decoder_embed_dim=0)),
}


class Made:
    """A model, its file, and inputs for B streams of T steps."""

    def __init__(self, cell: type[Cell], kind: str, folder: Path, dtype: str = "float32", **more):
        family, sizes = KINDS[kind]
        torch.manual_seed(3)
        self.torch = build_model(
            f"lstm_{family}",
            cell=cell.name,
            decoder_hidden_size=20,
            decoder_layers=2,
            **{**sizes, **more},
        ).eval()
        self.path = folder / "model.tsm"
        self.report = package(self.torch, self.path, dtype)
        generator = torch.Generator().manual_seed(5)
        if "vocab_size" in sizes:
            self.x = torch.randint(0, 13, (B, T), generator=generator)
        else:
            self.x = torch.randn(B, T, 5, generator=generator)
        self.dt = None
        if cell.takes_dt:
            self.dt = torch.rand(B, T, generator=generator) * 2 + 0.1

    def expected(self) -> tuple[np.ndarray, list[dict[str, np.ndarray]]]:
        """Logits of every step in float64, and the last states."""
        model = self.torch.double()
        x = self.x if self.x.dtype == torch.int64 else self.x.double()
        dt = None if self.dt is None else self.dt.double()
        with torch.no_grad():
            found = model.features(x, dt=dt)
            logits = model.head(found.raw)
        states = [{n: s.numpy() for n, s in layer.items()} for layer in found.state]
        return logits.numpy(), states

    def chunk(self, row: int, start: int = 0, end: int = T):
        x = self.x[row, start:end].numpy()
        return x, None if self.dt is None else self.dt[row, start:end].numpy()
