"""LSTM whose memory decays in continuous time, for unevenly spaced events."""

from __future__ import annotations

from .base import Cell, Vector, register_cell
from .lstm import lstm_update


@register_cell("lstm_decay")
class LstmDecay(Cell):
    """Memory that decays between steps (after Mei & Eisner 2017; here to 0, with a time constant per unit).

    f = sigmoid(z_f) exp(-dt / tau);  i, g, o, c, h as in the LSTM
    """

    gates = ("i", "f", "g", "o")
    states = ("h", "c")
    vectors = {"tau": Vector(link="exp", start=(1.0, 1000.0), spread="log")}
    takes_dt = True

    @staticmethod
    def step(ops, z, s, v, const, dt):
        rate = 1 / v.tau
        return lstm_update(ops, z, s, f=ops.sigmoid(z.f) * ops.exp(-dt * rate), i=ops.sigmoid(z.i))
