"""How closely two computations must agree: the table of the contract of a cell, and what only tests compare."""

from __future__ import annotations

from functools import partial

from tsm.export.contract.tolerances import TOLERANCES as OF_THE_CONTRACT
from tsm.export.contract.tolerances import Tolerance, check_close

TOLERANCES: dict[tuple[str, str], Tolerance] = {
    **OF_THE_CONTRACT,
    ("fused", "float64"): Tolerance(1e-10, 1e-10, "fma and another order of summation"),
    ("fused", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits over some 20 steps and sums over the batch"
    ),
    ("fused", "bfloat16"): Tolerance(3e-2, 3e-2, "both round h and y to 8 bits, gradients too"),
    ("cuda_gradient", "float32"): Tolerance(1e-5, 0, "of the largest; sums over batch and steps"),
    ("cuda_gradient", "bfloat16"): Tolerance(
        3e-2, 0, "of the largest; dz, h and the kept z are rounded to 8 bits"
    ),
    ("nru_cuda", "bfloat16"): Tolerance(
        0.05,
        3,
        "in the 2-norm; relative to the error of the reference: 8 bits, and where relu turns off",
    ),
    ("cuda_training", "float32"): Tolerance(1e-3, 0, "losses of 200 updates, each on the last's"),
    ("cuda_training", "bfloat16"): Tolerance(
        5e-2, 5e-2, "the same, with 8 bits of h and of every gradient of it"
    ),
    ("chunks", "float32"): Tolerance(2e-6, 2e-6, "torch may block its products by their size"),
    ("absolute_k", "float64"): Tolerance(1e-12, 1e-12, "age form against k form in long double"),
    ("absolute_k_dt", "float64"): Tolerance(1e-11, 1e-11, "the same with random dt and eps 1e-5"),
    ("onnx", "float32"): Tolerance(
        2e-5, 2e-5, "24 bits over some 20 steps; ONNX Runtime's sigmoid is 0 or 1 from |x| = 18"
    ),
    ("consumers", "float32"): Tolerance(
        1e-4, 1e-4, "24 bits, another library's sigmoid, tanh and sums; some 20 steps, two layers"
    ),
    ("consumers", "float16"): Tolerance(
        1e-2, 1e-2, "the same; one rounding to 11 bits may go the other way"
    ),
    ("consumers", "int8"): Tolerance(
        5e-2, 5e-2, "the same; one rounding to 8 bits may go the other way"
    ),
    ("onnx_int8", "float32"): Tolerance(
        0.1, 0.1, "8 bits in weights and activations, one scale for a whole batch of activations"
    ),
    ("torch_layer", "float64"): Tolerance(1e-12, 1e-12, "the same formula in torch.nn"),
    ("paper", "float64"): Tolerance(1e-12, 1e-12, "another form of the same formula, 40 steps"),
}

assert_close = partial(check_close, table=TOLERANCES)
