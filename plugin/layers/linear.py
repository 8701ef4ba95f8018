"""x W^T + b of an output layer under autocast, on a GPU in one call of the core per direction.

x is copied into rows [x, 1...], and W and b into a matrix [W, b, 0...], both in bfloat16. So b takes no launch,
and its gradient is a column of W's. torch would read the gradient of all outputs once more for it, and convert
each array in a launch of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from ..common.torch_private import apply_function, autocast_enabled, is_plain
from . import gpu
from .core import address
from .gpu import COPIED, UNIT_MULTIPLE, current_stream, dense, widened
from .sketch import KINDS_OF_CALLS, Given, Sketch

PRODUCT = torch.bfloat16


class Linear(nn.Linear):
    """torch's layer of that name, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [..., I] -> [..., O], as torch's function of that name; in the core it has no second derivative."""
    if not is_plain([x, weight, bias]) or not has_kernels(x, weight, bias):
        return nn.functional.linear(x, weight, bias)
    found: Tensor = apply_function(_Linear, x.reshape(-1, x.shape[-1]), weight, bias)
    return found.view(*x.shape[:-1], weight.shape[0])


def has_kernels(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether autocast would convert float32 weights to bfloat16, and rows of outputs are 16 bytes wide."""
    return (
        x.dim() >= 2
        and weight.dim() == 2
        and x.shape[-1] == weight.shape[1]
        and bias.shape == weight.shape[:1]
        and x.numel() > 0
        and x.dtype in COPIED
        and not any(t.is_neg() for t in (x, weight, bias))
        and weight.dtype == bias.dtype == torch.float32
        and weight.device == bias.device == x.device
        and len(weight) % UNIT_MULTIPLE == 0
        and autocast_enabled(x.device)
        and torch.get_autocast_dtype(x.device.type) == PRODUCT
        and gpu.has_kernels(PRODUCT, x.device)
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        count, (outputs, inputs) = len(x), weight.shape
        deep = widened(inputs + 1)
        rows = torch.empty(count, deep, dtype=PRODUCT, device=x.device)
        matrix = torch.empty(outputs, deep, dtype=PRODUCT, device=x.device)
        out = torch.empty(count, outputs, dtype=PRODUCT, device=x.device)
        described = _forward(x.get_device(), *map(_given, (x, weight, bias)))
        _run(described, x, weight, bias, rows, matrix, out)
        needs = ctx.needs_input_grad
        ctx.save_for_backward(rows if any(needs[1:]) else None, matrix if needs[0] else None)
        ctx.x_dtype, ctx.inputs = x.dtype, inputs
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # A saved-tensor hook may have replaced the saved ones.
        rows, matrix = (None if t is None else dense(t) for t in ctx.saved_tensors)
        grad, inputs = dense(grad), ctx.inputs
        count, outputs = grad.shape
        kinds = (
            (ctx.x_dtype, (count, inputs)),
            (torch.float32, (outputs, inputs)),
            (torch.float32, (outputs,)),
        )
        found = [
            torch.empty(shape, dtype=dtype, device=grad.device) if needed else None
            for needed, (dtype, shape) in zip(ctx.needs_input_grad, kinds, strict=True)
        ]
        kind = (count, outputs, inputs, ctx.x_dtype, ctx.needs_input_grad)
        _run(_backward(grad.get_device(), *kind), rows, matrix, grad, *found)
        return tuple(found)


def _run(described: tuple[Any, int], *arrays: Tensor | None) -> None:
    launches, scratch_bytes = described
    device = next(t.device for t in arrays if t is not None)
    scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device=device)
    launches.run(tuple(map(address, (*arrays, scratch))), current_stream(device))


@lru_cache(KINDS_OF_CALLS)
def _forward(device: int, *given: Given) -> tuple[Any, int]:
    sketch = Sketch(device)
    x, weight, bias = (sketch.array(*like) for like in given)
    (count, inputs), outputs = x.shape, len(weight)
    deep = widened(inputs + 1)
    rows = sketch.array(PRODUCT, (count, deep))
    matrix = sketch.array(PRODUCT, (outputs, deep))
    out = sketch.array(PRODUCT, (count, outputs))
    sketch.scratch([])
    sketch.copy(rows, x, 1.0)
    sketch.copy(matrix[:, :inputs], weight)
    sketch.copy(matrix[:, inputs:], bias[:, None])
    sketch.run_copies()
    sketch.product(rows, matrix.t(), out, tf32=False)
    return sketch.launches, sketch.scratch_bytes


@lru_cache(KINDS_OF_CALLS)
def _backward(
    device: int,
    count: int,
    outputs: int,
    inputs: int,
    x_dtype: torch.dtype,
    needs: tuple[bool, ...],
) -> tuple[Any, int]:
    sketch = Sketch(device)
    deep, across = widened(inputs + 1), widened(inputs)
    rows = sketch.array(PRODUCT, (count, deep))
    matrix = sketch.array(PRODUCT, (outputs, deep))
    grad = sketch.array(PRODUCT, (count, outputs))
    of_x = sketch.optional((x_dtype, (count, inputs)) if needs[0] else None)
    of_weight = sketch.optional((torch.float32, (outputs, inputs)) if needs[1] else None)
    of_bias = sketch.optional((torch.float32, (outputs,)) if needs[2] else None)
    direct = x_dtype == PRODUCT and across == inputs
    back, of_both = sketch.scratch(
        [
            (PRODUCT, (count, across) if needs[0] and not direct else (0,)),
            (PRODUCT, (outputs, deep) if any(needs[1:]) else (0,)),
        ]
    )
    if of_x is not None:
        sketch.product(grad, matrix[:, :across], of_x if direct else back, tf32=False)
        if not direct:
            sketch.copy(of_x, back[:, :inputs])
    if any(needs[1:]):
        sketch.product(grad.t(), rows, of_both, tf32=False)
        if of_weight is not None:
            sketch.copy(of_weight, of_both[:, :inputs])
        if of_bias is not None:
            sketch.copy(of_bias, of_both[:, inputs])
    sketch.run_copies()
    return sketch.launches, sketch.scratch_bytes


def _given(tensor: Tensor) -> Given:
    return tensor.dtype, tensor.shape, tensor.stride()
