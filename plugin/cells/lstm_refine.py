"""LSTM with a refine gate on its forget gate, without and with a tied input gate."""

from __future__ import annotations

from .base import Cell, register_cell
from .lstm import lstm_update


def refined(ops, z):
    """f = r (1 - (1 - f0)^2) + (1 - r) f0^2 = f0^2 + 2 r f0 (1 - f0);  f0, r = sigmoid(z)"""
    f0 = ops.sigmoid(z.f)
    return f0 * f0 + 2 * ops.sigmoid(z.r) * (f0 * ops.sigmoid(-z.f))


@register_cell("lstm_refine")
class LstmRefine(Cell):
    """Refine gate (Gu et al. 2020).

    f0, r = sigmoid(z);  f = r (1 - (1 - f0)^2) + (1 - r) f0^2;  i, g, o, c, h as in the LSTM
    """

    gates = ("i", "f", "g", "o", "r")
    states = ("h", "c")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return lstm_update(ops, z, s, f=refined(ops, z), i=ops.sigmoid(z.i))


@register_cell("lstm_refine_tied")
class LstmRefineTied(Cell):
    """Refine gate (Gu et al. 2020), with a tied input gate, as in the language models of Ohno et al. 2022.

    f0, r = sigmoid(z);  f = r (1 - (1 - f0)^2) + (1 - r) f0^2;  i = 1 - f;  g, o, c, h as in the LSTM
    """

    gates = ("f", "g", "o", "r")
    states = ("h", "c")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        f = refined(ops, z)
        return lstm_update(ops, z, s, f=f, i=1 - f)
