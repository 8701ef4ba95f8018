"""A third-party cell: leaky integrators, each with a learned time constant.

tsm-train --user-dir examples/user_dir --arch leaky_lm
"""

from tsm.plugin import register_cell, register_model_architecture
from tsm.plugin.cells import Cell, Vector


@register_cell("leaky")
class Leaky(Cell):
    """Each unit forgets at its own rate, in real time.

    f = exp(-dt / tau);  c = f c' + (1 - f) tanh(z_g);  h = sigmoid(z_o) tanh(c)
    """

    gates = ("g", "o")
    states = ("h", "c")
    vectors = {"tau": Vector(link="exp", start=(1.0, 100.0))}
    takes_dt = True

    @staticmethod
    def step(ops, z, s, v, const, dt):
        f = ops.exp(-dt / v.tau)
        c = f * s.c + (1 - f) * ops.tanh(z.g)
        return dict(h=ops.sigmoid(z.o) * ops.tanh(c), c=c)


@register_model_architecture("lm", "leaky_lm")
def leaky_lm(chosen):
    """What `--arch leaky_lm` sets; flags on the command line override it."""
    return {"cell": "leaky"}
