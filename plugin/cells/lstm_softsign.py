"""LSTM whose forget gate saturates slowly."""

from __future__ import annotations

from .base import Cell, register_cell
from .lstm import lstm_update


@register_cell("lstm_softsign")
class LstmSoftsign(Cell):
    """Normalized softsign gate (Ohno et al. 2022), the slow baseline for the fast gate.

    f = (softsign(z_f / 2) + 1) / 2;  i, g, o, c, h as in the LSTM
    """

    gates = ("i", "f", "g", "o")
    states = ("h", "c")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return lstm_update(ops, z, s, f=ops.softsign_gate(z.f), i=ops.sigmoid(z.i))
