"""The LSTM, the baseline for all other cells, and the update that its variants share."""

from __future__ import annotations

from .base import Cell, register_cell


def lstm_update(ops, z, s, f, i):
    """c = f c' + i tanh(z_g);  h = sigmoid(z_o) tanh(c)"""
    c = f * s.c + i * ops.tanh(z.g)
    return dict(h=ops.sigmoid(z.o) * ops.tanh(c), c=c)


@register_cell("lstm")
class Lstm(Cell):
    """LSTM (Hochreiter & Schmidhuber 1997, Gers et al. 2000), gates in PyTorch's order.

    i, f, o = sigmoid(z);  g = tanh(z_g);  c = f c' + i g;  h = o tanh(c)
    """

    gates = ("i", "f", "g", "o")
    states = ("h", "c")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return lstm_update(ops, z, s, f=ops.sigmoid(z.f), i=ops.sigmoid(z.i))
