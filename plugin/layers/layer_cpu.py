"""A layer in the compiled core on the CPU: one call per direction, including the products with W and U."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .checks import check_inputs, check_times, expect
from .contract import Gradients, LayerCall
from .core import DTYPES, _core, address, cell_info, empty, saved_state_count
from .parameters import raw_gradients, values_of

READS_INPUTS = True


def forward(
    call: LayerCall,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Sequence[Tensor],
    vectors: Sequence[Tensor],
    dt: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    """Returns y [B,T,H], the last states [B,H], and the arrays for backward (none unless `keep`)."""
    batch, steps, _, hidden = call.shape
    info, exact = cell_info(call.cell), call.state_dtype
    x, weight_x, bias, weight_h = _arrays(call, x, weight_x, bias, weight_h)
    state = [_readable(t, exact) for t in state]
    check_inputs(call, x, weight_x, bias, weight_h, state, vectors)
    check_times(call, x, dt, lengths)
    values = values_of(call.links, vectors, exact)
    y = empty((batch, steps, hidden), call.dtype, x.device)
    last = [y.new_empty(batch, hidden, dtype=exact) for _ in range(info["states"])]
    saved = tuple(empty(shape, dtype, x.device) for dtype, shape in saved_shapes(call, keep))
    dt, lengths = [None if t is None else _dense(t) for t in (dt, lengths)]
    _core.layer_forward(
        **_described(call, x, weight_x),
        x=address(x),
        weight_x=address(weight_x),
        bias=address(bias),
        weight_h=address(weight_h),
        state=[address(t) for t in state],
        vectors=address(values),
        dt=address(dt),
        lengths=address(lengths),
        y=address(y),
        last=[address(t) for t in last],
        saved=address(saved[0]) if saved else 0,
    )
    return y, last, saved


def backward(
    call: LayerCall,
    needs: Sequence[bool],
    x: Tensor,
    weight_x: Tensor,
    weight_h: Tensor,
    h: Tensor | None,
    vectors: Sequence[Tensor],
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor,
    saved: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_last: Sequence[Tensor | None],
    overwrite: bool,
) -> Gradients:
    """Gradients in the core's precision. overwrite: `saved` may be overwritten."""
    batch, steps, _, hidden = call.shape
    x, weight_x, _, weight_h = _arrays(call, x, weight_x, weight_x, weight_h)
    exact = call.state_dtype
    h = None if h is None else _readable(h, exact)
    # A saved-tensor hook may have replaced them.
    check_inputs(call, x, weight_x, None, weight_h, [] if h is None else [h], vectors)
    check_times(call, x, dt, lengths)
    grad_y = None if grad_y is None else _dense(grad_y)
    grad_last = [None if g is None else _dense(g) for g in grad_last]
    expect(x, "y", y, call.dtype, batch, steps, hidden)
    expect(y, "grad_y", grad_y, y.dtype, *y.shape)
    for grad in grad_last:
        expect(y, "the gradient of a state", grad, exact, batch, hidden)
    dt, lengths = [None if t is None else _dense(t) for t in (dt, lengths)]
    of_state = saved[0].new_empty(len(grad_last), batch, hidden)
    values = values_of(call.links, vectors, exact)
    of_values = None if values is None else torch.empty_like(values)
    found = Gradients(
        empty(x.shape, x.dtype, x.device) if needs[0] else None,
        torch.empty_like(weight_x) if needs[1] else None,
        weight_x.new_empty(weight_x.shape[0]),
        torch.empty_like(weight_h) if needs[3] else None,
        of_state if needs[4] else None,
        None,
    )
    of_last = [address(g) for g in grad_last]
    _core.layer_backward(
        **_described(call, x, weight_x),
        x=address(x),
        weight_x=address(weight_x),
        weight_h=address(weight_h),
        h=address(h),
        vectors=address(values),
        dt=address(dt),
        lengths=address(lengths),
        y=address(y),
        saved=address(saved[0]),
        overwrite_saved=overwrite,
        grad_y=address(grad_y),
        grad_last=of_last if any(of_last) else [],
        grad_x=address(found.x),
        grad_weight_x=address(found.weight_x),
        grad_bias=address(found.bias),
        grad_weight_h=address(found.weight_h),
        grad_state=address(of_state),
        grad_vectors=address(of_values),
    )
    return found._replace(vectors=raw_gradients(call.links, of_values, values))


def saved_shapes(call: LayerCall, keep: bool) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """The arrays that forward saves: a single one with the activated gates and the states before each step."""
    batch, steps, _, hidden = call.shape
    numbers = cell_info(call.cell)["gates"] + saved_state_count(call.cell)
    return [(call.state_dtype, (numbers * batch * steps * hidden,))] if keep else []


def _described(call: LayerCall, x: Tensor, weight_x: Tensor) -> dict[str, Any]:
    """The arguments that forward and backward have in common."""
    batch, steps, inputs, hidden = call.shape
    exact = call.state_dtype
    return {
        "cell": call.cell,
        "dtype": DTYPES[call.dtype],
        "constants": call.constants,
        "threads": torch.get_num_threads(),
        "batch": batch,
        "steps": steps,
        "inputs": inputs,
        "hidden": hidden,
        "full_precision_x": x.dtype == exact,
        "full_precision_weights": weight_x.dtype == exact,
    }


def _arrays(
    call: LayerCall, x: Tensor, weight_x: Tensor, bias: Tensor, weight_h: Tensor
) -> list[Tensor]:
    """x and weights for the core: each in the dtype of the layer or of its states, all weights in the same
    one."""
    dtypes = (call.dtype, call.state_dtype)
    x, *weights = [_readable(t, *dtypes) for t in (x, weight_x, bias, weight_h)]
    kind = weights[0].dtype
    if weights[1].dtype != kind or weights[2].dtype != kind:
        weights = [w.to(call.dtype) for w in weights]
    return [x, *weights]


def _readable(tensor: Tensor, *dtypes: torch.dtype) -> Tensor:
    """A dense tensor in one of these dtypes, converted to the first one if necessary."""
    return _dense(tensor if tensor.dtype in dtypes else tensor.to(dtypes[0]))


def _dense(tensor: Tensor) -> Tensor:
    """Contiguous, and not a lazily negated view."""
    if tensor.is_contiguous() and not tensor.is_neg():  # the usual case
        return tensor
    return tensor.resolve_neg().contiguous()
