"""A layer as one call: an autograd function in eager mode, or the operator `tsm::layer` when traced.

Both run the same implementation (choose.py says which). A small layer spends more time in torch's dispatcher
than in its kernels, so eager calls bypass it. Only first-order gradients are supported: double backward and
vmap raise an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from ..cells import get_cell
from ..common.torch_private import (
    apply_function,
    graph_is_retained,
    has_tangent,
    in_onnx_export,
    is_traced,
    is_transformed,
    without_autocast,
)
from . import layer_cpu, layer_cuda
from .checks import expect, refuse
from .choose import choose
from .contract import LayerCall

IMPLEMENTATIONS = {"layer_cpu": layer_cpu, "layer_cuda": layer_cuda}
SAVED = 3
"""The maximum number of arrays that an implementation may save for backward, besides masks. The operator, which
has no masks, always returns this many; unused ones are empty."""


def needs_operator(inputs: Sequence[Tensor], dt: Tensor | None) -> bool:
    """Whether the layer has to be called as an operator; NotImplementedError if neither form works.

    It is raised here because forward mode would silently give 0, and the errors of torch.func do not suggest an
    alternative.
    """
    if dt is not None:
        if dt.requires_grad:
            refuse("the gradient with respect to dt")
        inputs = [*inputs, dt]
    if torch.compiler.is_compiling():
        return True
    if has_tangent(inputs):
        refuse("forward-mode differentiation")
    if is_transformed(inputs):
        refuse("a transform of torch.func (grad, vjp, jvp, jacrev, vmap)")
    return is_traced(inputs)


def run_function(
    route: str,
    call: LayerCall,
    dt: Tensor | None,
    lengths: Tensor | None,
    inputs: Sequence[Tensor],
    masks: tuple[Tensor | None, ...] = (),
) -> tuple[Tensor, list[Tensor]]:
    """Returns y and the last states.

    inputs: x, weight_x, bias, weight_h; the initial states, or none if they are 0; the raw vectors. masks: of x
    and weight_h, for layer_cuda.
    """
    implementation = IMPLEMENTATIONS[route]
    fixed = _Fixed(implementation, call, dt, lengths, masks, torch.is_grad_enabled())
    y, *last = apply_function(LayerFunction, fixed, *inputs)
    return y, last


class _Fixed(NamedTuple):
    """All inputs without a gradient, bundled in one argument because autograd inspects every argument."""

    implementation: ModuleType
    call: LayerCall
    dt: Tensor | None
    lengths: Tensor | None
    masks: tuple[Tensor | None, ...]
    keep: bool


class LayerFunction(torch.autograd.Function):
    """Returns y, then the last states. B, T >= 1.

    Another operator around this function, such as a link, would cost as much as all the Python code here, so
    implementations cast and link.
    """

    @staticmethod
    def forward(
        ctx: Any,
        fixed: _Fixed,
        x: Tensor,
        weight_x: Tensor,
        bias: Tensor,
        weight_h: Tensor,
        *leaves: Tensor,
    ) -> tuple[Tensor, ...]:
        implementation, call, dt, lengths, masks, keep = fixed
        given = len(leaves) - len(call.links)
        state, vectors = leaves[:given], leaves[given:]
        keep = keep and any(ctx.needs_input_grad)
        y, last, saved = implementation.forward(
            call, x, weight_x, bias, weight_h, state, vectors, dt, lengths, keep, *masks
        )
        if keep:
            ctx.fixed = fixed
            ctx.places = [(t.data_ptr(), t.shape) for t in saved]
            ctx.set_materialize_grads(False)
            # Always save y, which is used to detect second derivatives.
            read: tuple[Tensor | None, ...] = (None, None, None, None, y, dt, lengths)
            if implementation.READS_INPUTS:
                h = state[0].clone() if state else None  # the caller may change it
                read = (x, weight_x, weight_h, h, y, dt, lengths, *vectors)
            ctx.save_for_backward(*read, *saved)
        return y, *last

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        x, weight_x, weight_h, h, y, dt, lengths, *saved = ctx.saved_tensors
        if ctx.places is None:  # a backward that raised has overwritten them
            raise RuntimeError("a second backward after one without retain_graph=True")
        if is_transformed([g for g in grads if g is not None]):
            refuse("vmap")
        implementation, call = ctx.fixed[:2]
        count = len(call.links) if implementation.READS_INPUTS else 0
        vectors, saved = saved[:count], saved[count:]
        hooked = [(t.data_ptr(), t.shape) for t in saved] != ctx.places
        if hooked:  # a saved-tensor hook has replaced them
            saved = _checked(implementation, call, saved)
        if implementation.READS_INPUTS:  # y is also read by address
            y = y.contiguous()
        # Overwrite the saved arrays if the graph is not retained and they are still those of forward.
        overwrite = not graph_is_retained() and not hooked
        if overwrite:
            ctx.places = None
        needs = ctx.needs_input_grad[1:]
        arrays = (x, weight_x, weight_h, h, vectors, dt, lengths, y, saved, *grads)
        run = _DifferentiatedOnce.apply if torch.is_grad_enabled() else _gradients
        found = run(implementation, call, needs, overwrite, *arrays)
        return None, *found


def _checked(implementation: ModuleType, call: LayerCall, saved: Sequence[Tensor]) -> list[Tensor]:
    """The saved arrays, checked and contiguous, since the core reads them by address, on a GPU 16 bytes at a
    time."""
    shapes = implementation.saved_shapes(call, True)
    for array, (dtype, shape) in zip(saved, shapes, strict=True):
        expect(saved[0], "the arrays saved by forward", array, dtype, *shape)
    dense = [array.contiguous() for array in saved]
    return [array.clone() if array.data_ptr() % 16 else array for array in dense]


def _gradients(
    implementation: ModuleType,
    call: LayerCall,
    needs: Sequence[bool],
    overwrite: bool,
    x: Tensor | None,
    weight_x: Tensor | None,
    weight_h: Tensor | None,
    h: Tensor | None,
    vectors: Sequence[Tensor],
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor | None,
    saved: Sequence[Tensor],
    grad_y: Tensor | None,
    *grad_last: Tensor | None,
) -> tuple[Tensor | None, ...]:
    """The gradients of all inputs of `run_function`. Autograd casts each to the dtype of its input."""
    count = len(call.links)
    states = needs[4 : len(needs) - count]
    needed = (*needs[:4], any(states), any(needs[len(needs) - count :]))
    with without_autocast(saved[0].device):
        found = implementation.backward(
            call, needed, x, weight_x, weight_h, h, vectors, dt, lengths, y, saved, grad_y,
            grad_last, overwrite
        )  # fmt: skip
    of_states = [None] * len(states) if found.state is None else found.state
    of_vectors = [None] * count if found.vectors is None else found.vectors
    return *found[:4], *of_states, *of_vectors


class _DifferentiatedOnce(torch.autograd.Function):
    """`_gradients` with a clear error if a second derivative is requested."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor | None, ...]:
        return _gradients(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> NoReturn:
        refuse("double backward")


def run_operator(
    call: LayerCall,
    dt: Tensor | None,
    lengths: Tensor | None,
    inputs: Sequence[Tensor],
    state: Iterable[Tensor],
    vectors: Mapping[str, Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """`run_function` as `tsm::layer`. inputs: x, weight_x, bias, weight_h; vectors: their values."""
    if in_onnx_export():
        raise NotImplementedError(
            "torch.onnx.export cannot translate the compiled layer; accepted: "
            "tsm.export.module_to_onnx(module, args, path), which writes a loop for any number of steps, or a "
            'layer with backend="reference", which torch.onnx.export unrolls'
        )
    exact = call.state_dtype
    first = torch.stack([value.to(exact) for value in state])
    values = [value.to(exact) for value in vectors.values()]
    packed = torch.stack(values) if values else first.new_empty(0, call.shape[3])
    tensors = (*inputs, first, packed)
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    # torch.jit.trace compares its graph with one that it traces without gradients.
    keep = keep or torch.jit.is_tracing()  # type: ignore[attr-defined]
    y, last, *_ = layer_operator(call.cell, call.constants, call.dtype, *tensors, dt, lengths, keep)
    return y, [last[i].clone() for i in range(len(first))]


@torch.library.custom_op("tsm::layer", mutates_args=(), device_types=("cpu", "cuda"))
def layer_operator(
    cell: str,
    constants: Sequence[float],
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Tensor,
    vectors: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns y [B,T,H], the last states [S,B,H] and the arrays for backward. state [S,B,H], vectors [K,H]."""
    implementation, call = _described(cell, constants, dtype, x, weight_x, bias, weight_h, state)
    if not x.shape[0] or not x.shape[1]:
        y, last, *saved = _fake_outputs(implementation, call, state, keep)
        return y, last.copy_(state), *saved  # type: ignore[return-value]
    with without_autocast(x.device):
        y, last, saved = implementation.forward(
            call, x, weight_x, bias, weight_h, list(state), list(vectors), dt, lengths, keep
        )
    # Outputs share no memory and have the layout of the fake outputs.
    shared = y.untyped_storage().data_ptr() in {t.untyped_storage().data_ptr() for t in saved}
    if shared or not y.is_contiguous():
        y = y.clone(memory_format=torch.contiguous_format)
    return y, torch.stack(last), *saved, *(y.new_empty(0) for _ in range(SAVED - len(saved)))


@torch.library.custom_op("tsm::layer_backward", mutates_args=(), device_types=("cpu", "cuda"))
def backward_operator(
    cell: str,
    constants: Sequence[float],
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Tensor,
    vectors: Tensor,
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    saved: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_last: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, weight_x, bias, weight_h, state and vectors.

    y requires a gradient whenever an input does, which is used to detect second derivatives.
    """
    inputs = (x, weight_x, bias, weight_h, state, vectors)
    if not y.numel():
        found: Any = (None, None, None, None, grad_last, None)
    else:
        implementation, call = _described(cell, constants, dtype, *inputs[:5])
        of_last = [None] * len(state) if grad_last is None else list(grad_last)
        used = _checked(implementation, call, saved[: len(implementation.saved_shapes(call, True))])
        expect(x, "y", y, dtype, *call.shape[:2], call.shape[3])
        with without_autocast(x.device):
            *found, of_vectors = implementation.backward(
                call, (True,) * 6, x, weight_x, weight_h, state[0], list(vectors), dt, lengths,
                y, used, grad_y, of_last, False
            )  # fmt: skip
        found.append(torch.stack(of_vectors) if of_vectors else None)
    made = zip(found, inputs, strict=True)
    return tuple(_fresh(gradient, like) for gradient, like in made)  # type: ignore[return-value]


def _fresh(gradient: Tensor | None, like: Tensor) -> Tensor:
    """The gradient as a new dense tensor with the dtype and shape of `like`; zeros for None."""
    if gradient is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    made = torch.empty_like(like, memory_format=torch.contiguous_format)
    return made.copy_(gradient.view_as(made))


def _described(
    cell: str,
    constants: Sequence[float],
    dtype: torch.dtype,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Tensor,
) -> tuple[ModuleType, LayerCall]:
    """The implementation that runs an operator, and its call."""
    if x.dim() != 3 or weight_h.dim() != 2:
        raise ValueError(
            f"x and weight_h have {x.dim()} and {weight_h.dim()} dimensions; accepted: 3 and 2"
        )
    shape = (*x.shape, weight_h.shape[1])
    dtypes = (x.dtype, weight_x.dtype, bias.dtype, weight_h.dtype)
    links = ("identity",) * len(get_cell(cell).vectors)
    call = LayerCall(cell, tuple(constants), dtype, shape, dtypes, links)
    expect(x, "state", state, call.state_dtype, len(get_cell(cell).states), shape[0], shape[3])
    route = choose(get_cell(cell), dtype, x.device)
    if not route.fused:
        raise ValueError(route.why)
    return IMPLEMENTATIONS[route.name], call


def _fake_outputs(
    implementation: ModuleType, call: LayerCall, state: Tensor, keep: bool
) -> tuple[Tensor, ...]:
    """The outputs of `tsm::layer` without values."""
    batch, steps, _, hidden = call.shape
    shapes = [(call.dtype, (batch, steps, hidden)), *implementation.saved_shapes(call, keep)]
    shapes += [(call.dtype, (0,))] * (SAVED + 1 - len(shapes))
    y, *saved = (state.new_empty(shape, dtype=dtype) for dtype, shape in shapes)
    return y, torch.empty_like(state), *saved


@layer_operator.register_fake
def _(cell: Any, constants: Any, dtype: Any, *tensors: Any) -> Any:
    *arrays, _, _, keep = tensors
    implementation, call = _described(cell, constants, dtype, *arrays[:5])
    return _fake_outputs(implementation, call, arrays[4], keep)


@backward_operator.register_fake
def _(cell: Any, constants: Any, dtype: Any, *tensors: Any) -> Any:
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors[:6])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *ctx.described, keep = inputs[:3] + inputs[-1:]
    y, _, *saved = output
    ctx.keep = keep
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*saved)
    ctx.save_for_backward(*inputs[3:11], y, *saved)


def _operator_gradients(
    ctx: Any, grad_y: Tensor | None, grad_last: Tensor | None, *_: Any
) -> tuple[Any, ...]:
    if not ctx.keep:
        raise RuntimeError("tsm::layer was called with keep=False, so it has no gradient")
    *inputs, y = ctx.saved_tensors[:9]
    saved = list(ctx.saved_tensors[9:])
    found = backward_operator(*ctx.described, *inputs, y, saved, grad_y, grad_last)
    return None, None, None, *found, None, None, None


def _no_second_derivative(ctx: Any, *gradients: Any) -> NoReturn:
    refuse("double backward")


def _no_vmap(*args: Any) -> NoReturn:
    refuse("vmap")


layer_operator.register_autograd(_operator_gradients, setup_context=_save)
backward_operator.register_autograd(
    _no_second_derivative, setup_context=lambda ctx, inputs, output: None
)
layer_operator.register_vmap(_no_vmap)
backward_operator.register_vmap(_no_vmap)
