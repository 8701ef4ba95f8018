"""A layer in the compiled core on a GPU, in one call per chunk and direction.

The core's planner chooses how it runs: one launch runs the whole chunk, with U or a part of it on the chip, or
each step is one product and one launch. A cell without U takes one launch. The launches of a call (copies,
products, the recurrence) are described once for each kind of call (`_forward`, `_backward`) and kept.

Layout (cpp/src/kernels/cuda/train has the kernels):

- `rows` [B, T+1, D+H']: one step of one row is [x, 1, h before it]. The product with W reads [x, 1], with the
  bias as a column of W followed by zeros; the gradients of W, bias and U are one product of dz with `rows`.
- A row of the batch has one step more than the chunk, for the h of the last step: h is stored one step later,
  after the initial h of the row.
- Widths (H' and D) are rounded up to 16 bytes, since products of other widths are several times slower. Padding
  units have zero weights to and from all other units, so they do not affect the result.
- `kept`, one piece of memory: W with the bias, U, the values of the vectors, the states before each step, z.
- z overwrites W x, and dz overwrites z if backward may do so.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cells import get_cell
from .checks import check_inputs, check_times, expect
from .contract import Gradients, LayerCall
from .core import _core, cell_info, rows_of_u, saved_state_count
from .gpu import COPIED, allows_tf32, current_stream, dense, is_dense, widened
from .sketch import KINDS_OF_CALLS, Given, Kind, Sketch, block_offsets

READS_INPUTS = False
View = tuple[tuple[int, ...], tuple[int, ...], int]
"""Size, strides and offset."""


class _Forward(NamedTuple):
    """What a call of forward allocates and runs."""

    run: Any
    rows: tuple[int, ...]
    kept: int  # bytes
    last: tuple[int, ...]
    scratch: int  # bytes
    y: View  # of rows
    states: list[View]  # of last


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
    mask_x: Tensor | None = None,
    mask_u: Tensor | None = None,
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    """Returns y [B,T,H] and the last states [B,H] as strided views, and the arrays for backward if `keep`.
    Masks: [B,1,I] and [G,H,H], where call.scales is not 0."""
    device, index = x.device, x.get_device()
    sources = [_copyable(t, call.dtype) for t in (x, weight_x, bias, weight_h, *state)]
    sources += [_copyable(t, torch.float32) for t in vectors]
    for source in sources:
        if source.get_device() != index:
            expect(x, "a weight, state or vector", source, source.dtype, *source.shape)
    check_times(call, x, dt, lengths)
    dt, lengths = _dense(dt), _dense(lengths)
    given = tuple([(t.dtype, t.shape, t.stride()) for t in sources])
    rest = (dt is not None, lengths is not None, keep)
    made = _forward(call, index, _core.plan_version(), allows_tf32(call.dtype), given, *rest)
    rows = torch.empty(made.rows, dtype=call.dtype, device=device)
    kept = torch.empty(made.kept, dtype=torch.uint8, device=device)
    last = torch.empty(made.last, dtype=torch.float32, device=device)
    scratch = torch.empty(made.scratch, dtype=torch.uint8, device=device)
    arrays = (*sources, mask_x, mask_u, dt, lengths, rows, kept, last, scratch)
    made.run(tuple([0 if t is None else t.data_ptr() for t in arrays]), current_stream(device))
    states = [last.as_strided(*view) for view in made.states]
    saved = (t for t in (rows, kept, mask_x, mask_u) if t is not None)
    return rows.as_strided(*made.y), states, tuple(saved) if keep else ()


@lru_cache(KINDS_OF_CALLS)
def _forward(
    call: LayerCall,
    device: int,
    plan_version: int,
    tf32: bool,
    given: tuple[Given, ...],
    has_dt: bool,
    has_lengths: bool,
    keep: bool,
) -> _Forward:
    batch, steps, inputs, hidden = call.shape
    info, sketch = cell_info(call.cell), Sketch(device)
    x, weight_x, bias, weight_h, *others = (sketch.array(*like) for like in given)
    count = len(others) - len(call.links)
    state, vectors = others[:count], others[count:]
    check_inputs(call, x, weight_x, bias, weight_h, state, vectors)
    mask_x, mask_u = map(sketch.optional, _masks(call))
    dt, lengths = _dt_and_lengths(sketch, call, has_dt, has_lengths)
    rows = sketch.array(*_rows(call))
    wide, deep = widened(hidden), widened(inputs + 1)
    w, u, values, z, *before = sketch.block(_kept(call, keep))
    last = sketch.array(torch.float32, (info["states"], batch, wide))
    (first,) = sketch.scratch([(torch.float32, last.shape)])

    blocks = (info["gates"], hidden)
    sketch.copy(rows[:, :, :deep], x, 1.0, mask_x, call.scales[0])
    sketch.copy(rows[:, 0, deep:], state[0] if state else None)
    sketch.copy(w[:, :, :inputs], weight_x.unflatten(0, blocks))
    sketch.copy(w[:, :, inputs:], bias.unflatten(0, blocks)[..., None])
    if len(u):
        sketch.copy(u, weight_h.unflatten(0, blocks), 0.0, mask_u, call.scales[1])
    for i in range(info["states"]):
        sketch.copy(first[i], state[i] if state else None)
    sketch.run_copies()
    if vectors:
        sketch.link_vectors(values, vectors, call.links)
    sketch.product(rows[..., :deep].flatten(0, 1), w.flatten(0, 1).t(), z.flatten(0, 1), tf32)
    sketch.recurrence(
        call.cell,
        call.dtype,
        call.constants,
        (batch, steps, wide),
        pitch=steps + 1,
        y_step=deep + wide,
        tf32=tf32,
        backward=False,
        arrays={
            "zx": z,
            "weight_h": u if len(u) else None,
            "state": first,
            "vectors": values if vectors else None,
            "dt": dt,
            "lengths": lengths,
            "y": rows[:, 1:, deep:],
            "last": last,
            "z": z if keep else None,
            "saved_states": before[0] if keep else None,
        },
    )
    return _Forward(
        sketch.launches.run,
        tuple(rows.shape),
        block_offsets(_kept(call, keep))[1],
        tuple(last.shape),
        sketch.scratch_bytes,
        _view(rows[:, 1:, deep : deep + hidden]),
        [_view(last[i, :, :hidden]) for i in range(info["states"])],
    )


class _Backward(NamedTuple):
    """What a call of backward allocates and runs."""

    run: Any
    gradients: list[Kind | None]  # of x, weight_x, bias, weight_h, vectors
    dz: int  # bytes; 0: dz overwrites z
    sums: tuple[int, ...]
    scratch: int  # bytes
    states: View  # of sums


def backward(
    call: LayerCall,
    needs: Sequence[bool],
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
    grad_last: Sequence[Tensor | None],
    overwrite: bool,
) -> Gradients:
    """Gradients in the dtypes of the inputs. overwrite: dz may overwrite the saved z."""
    batch, steps, _, hidden = call.shape
    rows, kept, *others = saved
    masks = [others.pop(0) if scale else None for scale in call.scales]
    device = rows.device
    expect(rows, "grad_y", grad_y, call.dtype, batch, steps, hidden)
    for grad in grad_last:
        expect(rows, "the gradient of a state", grad, torch.float32, batch, hidden)
    check_times(call, rows, dt, lengths)
    grads = [None if g is None else _copyable(g, g.dtype) for g in (grad_y, *grad_last)]
    direct = grads[0] is not None and hidden % 2 == 0 and is_dense(grads[0])
    dt, lengths = _dense(dt), _dense(lengths)
    given = tuple([None if g is None else (g.dtype, g.shape, g.stride()) for g in grads])
    rest = (direct, dt is not None, lengths is not None, overwrite)
    version = _core.plan_version()
    made = _backward(
        call, rows.get_device(), version, allows_tf32(call.dtype), tuple(needs), given, *rest
    )
    found = [
        None if kind is None else torch.empty(kind[1], dtype=kind[0], device=device)
        for kind in made.gradients
    ]
    dz = torch.empty(made.dz, dtype=torch.uint8, device=device) if made.dz else None
    sums = torch.empty(made.sums, dtype=torch.float32, device=device)
    scratch = torch.empty(made.scratch, dtype=torch.uint8, device=device)
    arrays = (rows, kept, *masks, dz, *grads, dt, lengths, *found, sums, scratch)
    made.run(tuple([0 if t is None else t.data_ptr() for t in arrays]), current_stream(device))
    grad_x, grad_w, grad_b, grad_u, of_vectors = found
    of_state = sums.as_strided(*made.states) if needs[4] else None
    raw = None if of_vectors is None else of_vectors.unsafe_chunk(len(call.links))
    return Gradients(grad_x, grad_w, grad_b, grad_u, of_state, raw)


@lru_cache(KINDS_OF_CALLS)
def _backward(
    call: LayerCall,
    device: int,
    plan_version: int,
    tf32: bool,
    needs: tuple[bool, ...],
    given: tuple[Given | None, ...],
    direct: bool,
    has_dt: bool,
    has_lengths: bool,
    overwrite: bool,
) -> _Backward:
    """direct: the kernel reads grad_y itself."""
    batch, steps, inputs, hidden = call.shape
    info, sketch = cell_info(call.cell), Sketch(device)
    gates, states, wide, deep = info["gates"], info["states"], widened(hidden), widened(inputs + 1)
    rows = sketch.array(*_rows(call))
    w, u, values, z, before = sketch.block(_kept(call, True))
    mask_x, mask_u = map(sketch.optional, _masks(call))
    other = sketch.optional(None if overwrite else (z.dtype, z.shape))
    dz = z if other is None else other
    grad_y, *grad_last = map(sketch.optional, given)
    dt, lengths = _dt_and_lengths(sketch, call, has_dt, has_lengths)
    gradients = _gradient_kinds(call, needs)
    grad_x, grad_w, grad_b, grad_u, of_vectors = map(sketch.optional, gradients)
    sums = sketch.array(torch.float32, (states + info["vectors"], batch, wide))
    read = rows[..., :deep] if grad_u is None else rows
    across = widened(inputs)  # without the bias: a tile of the product more would be computed
    padded_y, of_last, back, product = sketch.scratch(
        [
            (call.dtype, (0,) if direct or grad_y is None else (batch, steps, wide)),
            (torch.float32, (states, batch, wide) if any(given[1:]) else (0,)),
            (call.dtype, (batch, steps + 1, across) if needs[0] else (0,)),
            (call.dtype, (gates, wide, read.shape[2]) if any(needs[1:4]) else (0,)),
        ]
    )
    if grad_y is not None and not direct:
        sketch.copy(padded_y, grad_y)
    for i, grad in enumerate(grad_last if any(given[1:]) else ()):
        sketch.copy(of_last[i], grad)
    sketch.run_copies()
    padded = None if grad_y is None else grad_y if direct else padded_y
    sketch.recurrence(
        call.cell,
        call.dtype,
        call.constants,
        (batch, steps, wide),
        pitch=steps + 1,
        y_step=wide if padded is None else padded.shape[2],
        tf32=tf32,
        backward=True,
        arrays={
            "weight_h": u if len(u) else None,
            "vectors": values if call.links else None,
            "dt": dt,
            "lengths": lengths,
            "z": z,
            "saved_states": before,
            "grad_y": padded,
            "grad_last": of_last if any(given[1:]) else None,
            "grad_z": dz,
            "grad_state": sums[:states],
            "grad_vectors": sums[states:] if call.links else None,
        },
    )
    flat = dz.flatten(0, 1)
    if grad_x is not None:
        sketch.product(flat, w.flatten(0, 1)[:, :across], back.flatten(0, 1), tf32)
        sketch.copy(grad_x, back[:, :-1, :inputs], 0.0, mask_x, call.scales[0])
    if any(needs[1:4]):
        sketch.product(flat.t(), read.flatten(0, 1), product.flatten(0, 1), tf32)
        own = product[:, :hidden]
        if grad_w is not None:
            sketch.copy(grad_w.unflatten(0, (gates, hidden)), own[..., :inputs])
        if grad_b is not None:
            sketch.copy(grad_b.unflatten(0, (gates, hidden)), own[..., inputs])
        if grad_u is not None:
            of_u = own[..., deep : deep + hidden]
            sketch.copy(grad_u.unflatten(0, (gates, hidden)), of_u, 0.0, mask_u, call.scales[1])
    sketch.run_copies()
    if of_vectors is not None:
        of_raw = of_vectors.unflatten(0, (len(call.links), hidden))
        sketch.vector_gradients(sums[states:], values, of_raw, call.links)
    bytes_ = 0 if overwrite else z.numel() * z.dtype.itemsize
    return _Backward(
        sketch.launches.run,
        gradients,
        bytes_,
        tuple(sums.shape),
        sketch.scratch_bytes,
        _view(sums[:states, :, :hidden]),
    )


def _gradient_kinds(call: LayerCall, needs: tuple[bool, ...]) -> list[Kind | None]:
    """The gradients of x, weight_x, bias, weight_h and all vectors; None for those that are not needed. Where a
    dtype cannot be copied to, it is that of the layer: autograd converts them."""
    batch, steps, inputs, hidden = call.shape
    width = cell_info(call.cell)["gates"] * hidden
    shapes: list[tuple[int, ...]] = [(batch, steps, inputs), (width, inputs), (width,)]
    shapes.append((rows_of_u(call.cell, hidden), hidden))
    kinds = [kind if kind in COPIED else call.dtype for kind in call.input_dtypes]
    kinds.append(torch.float32)
    shapes.append((len(call.links) * hidden,))
    return [
        (kind, shape) if need and shape[0] else None
        for need, kind, shape in zip((*needs[:4], needs[5]), kinds, shapes, strict=True)
    ]


def saved_shapes(call: LayerCall, keep: bool) -> list[Kind]:
    """The arrays that forward saves: `rows`, `kept` and the masks."""
    if not keep:
        return []
    kept = torch.uint8, (block_offsets(_kept(call, True))[1],)
    return [_rows(call), kept, *(kind for kind in _masks(call) if kind is not None)]


def _masks(call: LayerCall) -> list[Kind | None]:
    """The masks of x and weight_h; None for those that do not exist."""
    batch, _, inputs, hidden = call.shape
    shapes = (batch, 1, inputs), (cell_info(call.cell)["gates"], hidden, hidden)
    return [
        (torch.bool, shape) if scale else None
        for scale, shape in zip(call.scales, shapes, strict=True)
    ]


def _rows(call: LayerCall) -> Kind:
    batch, steps, inputs, hidden = call.shape
    return call.dtype, (batch, steps + 1, widened(inputs + 1) + widened(hidden))


def _kept(call: LayerCall, keep: bool) -> list[Kind]:
    """W with the bias, U, the values of the vectors, z; for backward also the states before each step."""
    batch, steps, inputs, hidden = call.shape
    wide, deep, info = widened(hidden), widened(inputs + 1), cell_info(call.cell)
    gates = info["gates"]
    kinds: list[Kind] = [
        (call.dtype, (gates, wide, deep)),
        (call.dtype, (gates if get_cell(call.cell).gates_of("h") else 0, wide, wide)),
        (torch.float32, (info["vectors"], wide)),
        (call.dtype, (batch, steps + 1, gates * wide)),
    ]
    if keep:
        kinds.append((torch.float32, (saved_state_count(call.cell), batch, steps + 1, wide)))
    return kinds


def _dt_and_lengths(
    sketch: Sketch, call: LayerCall, has_dt: bool, has_lengths: bool
) -> list[Tensor | None]:
    dt, lengths = (torch.float32, call.shape[:2]), (torch.int64, call.shape[:1])
    return [
        sketch.optional(kind if given else None)
        for kind, given in ((dt, has_dt), (lengths, has_lengths))
    ]


def _view(tensor: Tensor) -> View:
    return tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())


def _copyable(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor, or a copy of it that the core can read: float32 or bfloat16, no lazily negated view."""
    if tensor.dtype not in COPIED:
        tensor = tensor.to(dtype)
    return tensor.resolve_neg() if tensor.is_neg() else tensor


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else dense(tensor)
