"""LSTM whose forget gate saturates fast."""

from __future__ import annotations

from .base import Cell, register_cell
from .lstm import lstm_update


@register_cell("lstm_fast")
class LstmFast(Cell):
    """Fast gate (Ohno et al. 2022, eq. 20).

    f = sigmoid(sinh(z_f));  i, g, o, c, h as in the LSTM
    """

    gates = ("i", "f", "g", "o")
    states = ("h", "c")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return lstm_update(ops, z, s, f=ops.fast_sigmoid(z.f), i=ops.sigmoid(z.i))
