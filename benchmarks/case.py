"""What is timed: one layer of a cell at a shape, with its weights, input and expected output."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ..plugin.common.lazy import np

if TYPE_CHECKING:
    from ..plugin.layers import Recurrent
    from ..plugin.models.sequence_model import SequenceModel

DTYPES = ("float32", "bfloat16", "int8")
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}


@dataclass(frozen=True)
class Case:
    """B streams of a layer of `cell` with I = H, in chunks of T steps."""

    cell: str
    B: int
    T: int
    H: int

    def __str__(self) -> str:
        return f"{self.cell} B={self.B} T={self.T} H={self.H}"

    @cached_property
    def model(self) -> SequenceModel:
        """The layer inside a tagger with one output (a dot product of H numbers per step)."""
        import torch

        from ..plugin import build_model

        model = build_model(
            "lstm_tagger",
            input_size=self.H,
            num_classes=1,
            cell=self.cell,
            decoder_hidden_size=self.H,
            decoder_layers=1,
            backend="reference",
        ).eval()
        # Drawn by numpy, since it gives the same numbers on every machine, and graphs may have been made on
        # another one.
        random = np.random.default_rng(zlib.crc32(f"{self.cell} {self.H}".encode()))
        with torch.no_grad():
            for name, parameter in sorted(model.named_parameters()):
                bound = 2.0 if name.endswith("_raw") else self.H**-0.5
                values = random.uniform(-bound, bound, tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values))
        return model

    @property
    def layer(self) -> Recurrent:
        return self.model.layers[0]

    @cached_property
    def x(self) -> np.ndarray:
        """[B,T,I]"""
        shape = (self.B, self.T, self.H)
        return np.random.default_rng(1).standard_normal(shape, dtype=np.float32)

    @cached_property
    def expected(self) -> np.ndarray:
        """h [B,H] after the chunk, from zero states, computed by the reference."""
        import torch

        with torch.no_grad():
            _, state = self.layer(torch.from_numpy(self.x))
        return state["h"].numpy()

    def weight_bytes(self, dtype: str) -> tuple[int, int]:
        """Bytes of W and of U as stored: the numbers and, for int8, one scale per row."""
        rows = len(self.layer.cell.gates) * self.H
        scales = 4 * rows if dtype == "int8" else 0
        each = rows * self.H * BYTES[dtype] + scales
        return each, each
