"""minGRU: a GRU whose gates read only the input."""

from __future__ import annotations

from .base import Cell, register_cell


@register_cell("min_gru")
class MinGru(Cell):
    """minGRU (Feng et al. 2024), without tanh and without U, as in the paper. Its update gate z is 1 - u here.

    u = sigmoid(z_u), z = W x + b;  h = u h' + (1 - u) z_g
    """

    gates = ("u", "g")
    reads = {"u": "x", "g": "x"}
    states = ("h",)

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return dict(h=z.g + ops.sigmoid(z.u) * (s.h - z.g))
