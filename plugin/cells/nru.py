"""Non-saturating recurrent unit: an additive memory, written and erased through low-rank vectors.

`advance` is the formula for numpy and torch. The ONNX and TorchScript exporters (which share `unit_norm`), the
C++ engine (which sums in float64) and the GPU kernels for training (cpp/src/kernels/cuda/nru) have their own
implementations of the step. A tape would need shapes and nine operations that no other cell uses (matmul,
transpose, concat, slice, outer product, reshape, mean, relu, layer norm), in each printer and in the
interpreter. Also, the engine never stores the k M entries of an outer product. It adds them to the memory as
they are computed, whereas a program would store the result of every operation.
"""

from __future__ import annotations

import math

from ..common.checks import check_integer
from .base import CompositeCell, register_cell
from .tape.rows import unit_norm

NORM = (5.0, 1e-12, 5.0859e7)
"""Order of the norm, the least divisor, and the norm above which a row counts as 0. Chandar et al. compute the
norm in float32, where the sum of fifth powers overflows above FLT_MAX^(1/5) = 5.0859e7, and x / inf = 0. This
limits the memory, which otherwise grows exponentially before it is trained."""
OUTPUTS = ("alpha", "beta", "write", "erase")


@register_cell("nru")
class Nru(CompositeCell):
    """NRU (Chandar et al. 2019): relu units and a memory m of width M with k read-write heads.

    h = relu(norm(W x + U h' + V m' + b)),  norm = layer norm or nothing
    from [h, m']: alpha, beta in R^k; write, erase in R^(k M), each an outer product of two halves of a linear
    map, in k rows of M, each row divided by its 5-norm, or 0 where that exceeds 5.0859e7
    m = m' + mean_k(alpha write - beta erase)
    """

    gates = ("h",)
    states = ("h", "m")
    bounded = False
    starts = {"norm_scale": 1.0, "norm_shift": 0.0}

    @classmethod
    def options(cls):
        return {"memory_size": None, "heads": 4, "layer_norm": False}

    @classmethod
    def check(cls, hidden_size, options):
        """memory_size defaults to the largest square up to 0.3 H (144 at H = 512, as in Ohno et al. 2022)."""
        full = super().check(hidden_size, options)
        if full["memory_size"] is None:
            full["memory_size"] = max(2, math.isqrt(int(0.3 * hidden_size))) ** 2
        for name in ("memory_size", "heads"):
            check_integer(name, full[name])
        if not isinstance(full["layer_norm"], bool):
            raise ValueError(f"layer_norm = {full['layer_norm']!r}; accepted: True or False")
        product = full["memory_size"] * full["heads"]
        if math.isqrt(product) ** 2 != product:
            raise ValueError(
                f"memory_size x heads = {full['memory_size']} x {full['heads']} = {product}; "
                "accepted: a square number (e.g. memory_size 144 with 4 heads)"
            )
        return full

    @classmethod
    def widths(cls, hidden_size, options):
        return {"h": hidden_size, "m": options["memory_size"]}

    @classmethod
    def weights(cls, hidden_size, options):
        memory, heads = options["memory_size"], options["heads"]
        side = math.isqrt(memory * heads)
        outputs = {"alpha": heads, "beta": heads, "write": 2 * side, "erase": 2 * side}
        shapes: dict[str, tuple[int, ...]] = {
            "weight_h": (hidden_size, hidden_size),
            "weight_m": (hidden_size, memory),
        }
        for name, width in outputs.items():
            shapes[f"weight_{name}"] = (width, hidden_size + memory)
            shapes[f"bias_{name}"] = (width,)
        if options["layer_norm"]:
            shapes |= {"norm_scale": (hidden_size,), "norm_shift": (hidden_size,)}
        return shapes

    @classmethod
    def fan_in(cls, name, input_size, hidden_size, options):
        """The inputs of its map, as in torch's Linear, which Chandar et al. use."""
        both = hidden_size + options["memory_size"]
        return both if name.endswith(OUTPUTS) else input_size + both

    @classmethod
    def combined(cls, ops, w):
        """The four output maps as one product."""
        weight = ops.concat([ops.transpose(w[f"weight_{name}"]) for name in OUTPUTS])
        return {
            **w,
            "weight_out": weight,
            "bias_out": ops.concat([w[f"bias_{n}"] for n in OUTPUTS]),
        }

    @classmethod
    def advance(cls, ops, zx, fed, w, s, v, const, dt):
        heads, memory = const["heads"], const["memory_size"]
        w = w if "weight_out" in w else cls.combined(ops, w)

        def linear(x, name):
            return ops.matmul(x, ops.transpose(w[f"weight_{name}"]))

        z = zx + linear(fed, "h") + linear(s["m"], "m")
        if const["layer_norm"]:
            z = ops.layer_norm(z) * w["norm_scale"] + w["norm_shift"]
        h = ops.relu(z)
        out = ops.matmul(ops.concat([h, s["m"]]), w["weight_out"]) + w["bias_out"]
        return dict(h=h, m=s["m"] + cls.change(ops, out, heads, memory))

    @classmethod
    def change(cls, ops, out, heads, memory):
        """What a step adds to m, from its alpha, beta, write and erase."""
        side = (out.shape[-1] - 2 * heads) // 4

        def rows(first):
            halves = out[..., first : first + 2 * side]
            outer = halves[..., :side, None] * halves[..., None, side:]
            flat = ops.reshape(outer, (*halves.shape[:-1], heads, memory))
            return unit_norm(ops, flat, *NORM)

        alpha, beta = out[..., :heads, None], out[..., heads : 2 * heads, None]
        change = alpha * rows(2 * heads) - beta * rows(2 * heads + 2 * side)
        return ops.mean(change, axis=-2)
