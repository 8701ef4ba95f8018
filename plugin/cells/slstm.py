"""sLSTM: exponential input gates and a normaliser, in a form that needs no stabiliser.

The paper stores c and n, which grow like e^z, divided by e^m, where m is a running maximum. Only c / n is ever
read. Storing a = c / n and l = log n instead is mathematically the same, needs neither m nor a division, and
cannot overflow:

    n = f n' + i      =>  w = i / n = sigmoid(z_i - log(f n')),  l = log(f n' + i)
    c = f c' + i g    =>  a = (1 - w) a' + w g

States start at 0, so n starts at 1, as if an input g = 0 with z_i = 0 had been read. The paper starts at
n = 0, which corresponds to an initial state with l = -30 (n = 1e-13).
"""

from __future__ import annotations

from .base import Cell, register_cell


@register_cell("slstm")
class Slstm(Cell):
    """sLSTM of xLSTM (Beck et al. 2024, eq. 8-17), with a = c / n and l = log n as its states, n starting at 1.

    i = exp(z_i);  f, o = sigmoid(z);  g = tanh(z_g)
    n = f n' + i;  a = (f n' a' + i g) / n;  h = o a
    as: w = sigmoid(z_i - log f - l');  a = a' + w (g - a');  l = log(f e^l' + i)
    """

    gates = ("i", "f", "g", "o")
    states = ("h", "a", "l")

    @staticmethod
    def step(ops, z, s, v, const, dt):
        kept = ops.log_sigmoid(z.f) + s.l  # log(f n')
        excess = z.i - kept
        a = s.a + ops.sigmoid(excess) * (ops.tanh(z.g) - s.a)
        return dict(h=ops.sigmoid(z.o) * a, a=a, l=kept - ops.log_sigmoid(-excess))
