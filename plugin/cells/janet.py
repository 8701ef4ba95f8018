"""JANET: a recurrent network with only a forget gate."""

from __future__ import annotations

from .base import Cell, register_cell


@register_cell("janet")
class Janet(Cell):
    """JANET (van der Westhuizen & Lasenby 2018): one state, |h| < e^beta.

    h = sigmoid(z_f) h' + (1 - sigmoid(z_f - beta)) tanh(z_g)
    """

    gates = ("f", "g")
    states = ("h",)
    constants = {"beta": 1.0}

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return dict(h=ops.sigmoid(z.f) * s.h + ops.sigmoid(const.beta - z.f) * ops.tanh(z.g))
