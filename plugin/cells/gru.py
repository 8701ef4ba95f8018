"""The GRU in PyTorch's form."""

from __future__ import annotations

from .base import Cell, register_cell


@register_cell("gru")
class Gru(Cell):
    """GRU (Cho et al. 2014) as in PyTorch: r scales only U h' + b, so the candidate has two blocks, nx and nh.

    r, u = sigmoid(z);  n = tanh(z_nx + r z_nh), z_nx = W x + b, z_nh = U h' + b;  h = u h' + (1 - u) n
    """

    gates = ("r", "u", "nx", "nh")
    reads = {"nx": "x", "nh": "h"}
    states = ("h",)

    @staticmethod
    def step(ops, z, s, v, const, dt):
        n = ops.tanh(z.nx + ops.sigmoid(z.r) * z.nh)
        return dict(h=n + ops.sigmoid(z.u) * (s.h - n))
