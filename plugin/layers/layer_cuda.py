"""A layer in the compiled core on a GPU, in one call per chunk and direction.

The core's planner chooses how it runs: one launch runs the whole chunk, with U or a part of it on the chip, or
each step is one product and one launch. A cell without U takes one launch.

Layout (cpp/src/kernels/cuda/train has the kernels):

- `rows` [B, T+1, D+H']: one step of one row is [x, 1, h before it]. The product with W reads [x, 1], with the
  bias as a column of W followed by zeros; the gradients of W, bias and U are one product of dz with `rows`.
- A row of the batch has one step more than the chunk, for the h of the last step: h is stored one step later,
  after the initial h of the row.
- Widths (H' and D) are rounded up to 16 bytes, since products of other widths are several times slower. Padding
  units have zero weights to and from all other units, so they do not affect the result.
- z overwrites W x, and dz overwrites z if backward may do so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..cells import get_cell
from .checks import expect, expect_rest
from .contract import Gradients, LayerCall
from .core import DTYPES, _core, address, cell_info, rows_of_u, saved_state_count

STACKED_STATES = True
READS_INPUTS = False
UNIT_MULTIPLE = 8  # the kernels and fast matrix products read 16 bytes at a time
COPIED = (torch.float32, torch.bfloat16)
OLDEST = (8, 0)
"""The oldest compute capability that the kernels are compiled for."""


def why_not(dtype: torch.dtype, device: torch.device) -> str:
    """Why there are no kernels for this GPU and dtype; "" if there are."""
    if not _core.with_cuda:
        return "the compiled core was built without CUDA"
    if torch.cuda.is_available():
        found = torch.cuda.get_device_capability(device)
        if not _core.cuda_device_count():
            return "the core's CUDA runtime finds no device: is the driver older than the CUDA that built it?"
        if found < OLDEST:
            return "compute capability {}.{}; the kernels need {}.{} or newer".format(
                *found, *OLDEST
            )
        if not _core.recurrence_cuda_path(device=_ordinal(device)):
            return "this build has no code for compute capability {}.{}".format(*found)
    if dtype not in COPIED:
        names = ", ".join(DTYPES[kind] for kind in COPIED)
        return f"dtype {dtype} has no kernel on cuda (available: {names})"
    return ""


@cache
def fits(cell: str, dtype: torch.dtype, device: torch.device, batch: int, hidden: int) -> bool:
    """Whether the core can run such a layer on this device, forward and backward."""
    if not _core.cuda_device_count():
        return False
    if not get_cell(cell).gates_of("h"):
        return True
    sizes = (
        _workspace_bytes(cell, dtype, device, batch, widened(hidden), b) for b in (False, True)
    )
    return all(size >= 0 for size in sizes)


def widened(width: int) -> int:
    """The width rounded up to 16 bytes of bfloat16."""
    return -(-width // UNIT_MULTIPLE) * UNIT_MULTIPLE


def forward(
    call: LayerCall,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Sequence[Tensor],
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    keep: bool,
) -> tuple[Tensor, list[Tensor], tuple[Tensor, ...]]:
    """Returns y [B,T,H] as a strided view, [the last states [S,B,H]], and the arrays for backward if `keep`."""
    batch, steps, inputs, hidden = call.shape
    info = cell_info(call.cell)
    blocks = (info["gates"], hidden)
    check_inputs(call, x, weight_x, bias, weight_h, state, vectors, dt, lengths)
    size_rows, size_w, size_u, size_states, size_z = (s for _, s in saved_shapes(call, True))
    wide, deep = size_u[1], size_w[2]
    rows, w, u = (x.new_empty(size, dtype=call.dtype) for size in (size_rows, size_w, size_u))
    first = x.new_empty(info["states"], batch, wide, dtype=torch.float32)
    copies = StridedCopies()
    copies.add(rows[:, :, :deep], x, fill=1.0)
    copies.add(rows[:, 0, deep:], state[0] if state else None)
    copies.add(w[:, :, :inputs], weight_x.unflatten(0, blocks))
    copies.add(w[:, :, inputs:], bias.unflatten(0, blocks)[..., None])
    if len(u):
        copies.add(u, weight_h.unflatten(0, blocks))
    for i in range(info["states"]):
        copies.add(first[i], state[i] if state else None)
    packed = _packed_vectors(copies, call, vectors)
    copies.run(x.device)

    z = (rows[..., :deep].flatten(0, 1) @ w.flatten(0, 1).t()).view(size_z)
    last = torch.empty_like(first)
    before = x.new_empty(size_states, dtype=torch.float32) if keep else None
    recurrence_forward(
        call.cell,
        call.constants,
        (batch, steps, wide),
        pitch=steps + 1,
        y_step=deep + wide,
        zx=z,
        weight_h=u,
        state=first,
        vectors=packed,
        dt=_dense(dt),
        lengths=_dense(lengths),
        y=rows[:, 1:, deep:],
        last=last,
        z=z if keep else None,
        saved_states=before,
    )
    saved = () if before is None else (rows, w, u, before, z)
    return rows[:, 1:, deep : deep + hidden], [last[..., :hidden]], saved


def backward(
    call: LayerCall,
    needs: Sequence[bool],
    x: Tensor | None,
    weight_x: Tensor | None,
    weight_h: Tensor | None,
    h: Tensor | None,
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
    y: Tensor | None,
    saved: Sequence[Tensor],
    grad_y: Tensor | None,
    grad_last: Sequence[Tensor | None],
    overwrite: bool,
) -> Gradients:
    """Gradients in the layer's dtype. overwrite: dz may overwrite the saved z."""
    batch, steps, inputs, hidden = call.shape
    rows, w, u, before, z = saved
    gates, wide, deep = w.shape
    (of_last,) = grad_last
    expect(z, "grad_y", grad_y, call.dtype, batch, steps, hidden)
    info = cell_info(call.cell)
    expect(z, "the gradient of the states", of_last, torch.float32, info["states"], batch, hidden)
    copies = StridedCopies()
    packed = _packed_vectors(copies, call, vectors)
    if grad_y is not None and (hidden % 2 or not _is_dense(grad_y)):
        grad_y = copies.widened(grad_y, wide)
    if of_last is not None and (hidden != wide or not _is_dense(of_last)):
        of_last = copies.widened(of_last, wide)
    copies.run(z.device)
    dz = z if overwrite else torch.empty_like(z)
    grad_state = before.new_empty(info["states"], batch, wide)
    by_row = before.new_empty(info["vectors"], batch, wide)
    recurrence_backward(
        call.cell,
        call.constants,
        (batch, steps, wide),
        pitch=steps + 1,
        y_step=wide if grad_y is None else grad_y.shape[2],
        weight_h=u,
        vectors=packed,
        dt=_dense(dt),
        lengths=_dense(lengths),
        z=z,
        saved_states=before,
        grad_y=grad_y,
        grad_last=of_last,
        grad_z=dz,
        grad_state=grad_state,
        grad_vectors=by_row,
    )
    flat, copies = dz.flatten(0, 1), StridedCopies()
    grad_x = grad_w = grad_b = grad_u = None
    of_x, of_w, of_b, of_u = call.input_dtypes
    if needs[0]:
        back = (flat @ w.flatten(0, 1)).unflatten(0, (batch, steps + 1))
        grad_x = copies.dense(back[:, :-1, :inputs], of_x)
    if any(needs[1:4]):
        read = rows if len(u) else rows[..., :deep]
        product = (flat.t() @ read.flatten(0, 1)).unflatten(0, (gates, wide))[:, :hidden]
        grad_w = copies.dense(product[..., :inputs], of_w).flatten(0, 1)
        grad_b = copies.dense(product[..., inputs], of_b).flatten()
        if len(u):
            grad_u = copies.dense(product[..., deep : deep + hidden], of_u).flatten(0, 1)
    copies.run(z.device)
    of_vectors = None if vectors is None else by_row.sum(1)[:, :hidden].flatten()
    return Gradients(grad_x, grad_w, grad_b, grad_u, grad_state[..., :hidden], of_vectors)


def saved_shapes(call: LayerCall, keep: bool) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """The arrays that forward saves: rows, W with bias, U, the states before each step, z."""
    if not keep:
        return []
    batch, steps, inputs, hidden = call.shape
    wide, deep, gates = widened(hidden), widened(inputs + 1), cell_info(call.cell)["gates"]
    return [
        (call.dtype, (batch, steps + 1, deep + wide)),
        (call.dtype, (gates, wide, deep)),
        (call.dtype, (gates if get_cell(call.cell).gates_of("h") else 0, wide, wide)),
        (torch.float32, (saved_state_count(call.cell), batch, steps + 1, wide)),
        (call.dtype, (batch, steps + 1, gates * wide)),
    ]


def check_inputs(
    call: LayerCall,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor,
    weight_h: Tensor,
    state: Sequence[Tensor],
    vectors: Tensor | None,
    dt: Tensor | None,
    lengths: Tensor | None,
) -> None:
    """Checks shapes and devices. dtypes of x, weights and states may differ: strided copies convert them."""
    batch, _, inputs, hidden = call.shape
    width = cell_info(call.cell)["gates"] * hidden
    expect(x, "weight_x", weight_x, weight_x.dtype, width, inputs)
    expect(x, "bias", bias, bias.dtype, width)
    expect(x, "weight_h", weight_h, weight_h.dtype, rows_of_u(call.cell, hidden), hidden)
    for one in state:
        expect(x, "a state", one, one.dtype, batch, hidden)
    expect_rest(call, x, vectors, dt, lengths)


def recurrence_forward(
    cell: str,
    constants: list[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    weight_h: Tensor,
    **arrays: Tensor | None,
) -> None:
    """Runs only the recurrence. arrays: zx, state, vectors, dt, lengths, y, last, z (may be zx), saved_states.

    shape: B, T, H. pitch: steps from one row of zx, y, z and saved_states to the next. y_step: elements from
    one step of y to the next. dt and lengths are dense.
    """
    _launch(
        _core.recurrence_forward_cuda,
        False,
        cell,
        constants,
        shape,
        pitch,
        y_step,
        weight_h,
        arrays,
    )


def recurrence_backward(
    cell: str,
    constants: list[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    weight_h: Tensor,
    **arrays: Tensor | None,
) -> None:
    """Runs only the recurrence. arrays: vectors, dt, lengths, z, saved_states, grad_y, grad_last, grad_z,
    grad_state, grad_vectors.

    grad_vectors is [K,B,H]; the caller sums over the batch. grad_y [B,T,y_step] is dense and may have fewer
    units than H. The rows of the others are pitch steps apart. grad_z may be z; after step T it is 0.
    """
    _launch(
        _core.recurrence_backward_cuda,
        True,
        cell,
        constants,
        shape,
        pitch,
        y_step,
        weight_h,
        arrays,
    )


def _launch(
    kernel: Callable[..., None],
    backward: bool,
    cell: str,
    constants: list[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    weight_h: Tensor,
    arrays: Mapping[str, Tensor | None],
) -> None:
    batch, steps, hidden = shape
    device, dtype = weight_h.device, weight_h.dtype
    with torch.cuda.device(device):
        size = 0  # without U
        if weight_h.numel():
            size = _workspace_bytes(cell, dtype, device, batch, hidden, backward)
        workspace = torch.empty(max(size, 16), dtype=torch.uint8, device=device)
        kernel(
            cell=cell,
            dtype=DTYPES[dtype],
            constants=constants,
            batch=batch,
            steps=steps,
            hidden=hidden,
            pitch=pitch,
            y_step=y_step,
            tf32=torch.backends.cuda.matmul.fp32_precision == "tf32",
            weight_h=address(weight_h),
            workspace=address(workspace),
            stream=current_stream(device),
            **{name: address(array) for name, array in arrays.items()},
        )


def _ordinal(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def _workspace_bytes(
    cell: str, dtype: torch.dtype, device: torch.device, batch: int, hidden: int, backward: bool
) -> int:
    """Scratch memory of a call; -1 if the kernel cannot run."""
    return _core.recurrence_cuda_workspace(
        cell=cell,
        dtype=DTYPES[dtype],
        device=_ordinal(device),
        batch=batch,
        hidden=hidden,
        backward=backward,
    )


def current_stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream


def _packed_vectors(
    copies: StridedCopies, call: LayerCall, vectors: Tensor | None
) -> Tensor | None:
    """The values of the vectors [K, H']; 1 for padding units."""
    if vectors is None:
        return None
    hidden = call.shape[3]
    packed = vectors.new_empty(len(vectors) // hidden, widened(hidden))
    copies.add(packed, vectors.view(-1, hidden), fill=1.0)
    return packed


def _is_dense(tensor: Tensor) -> bool:
    """Contiguous, not a lazily negated view, and aligned to 16 bytes."""
    return tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() % 16 == 0


def _dense(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or _is_dense(tensor):
        return tensor
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


class _Copy(NamedTuple):
    """The fields in the order of the core (checked below). Passing them by name would cost more than the
    copy."""

    source: int
    to: int
    float32_source: bool
    float32_to: bool
    fill: float
    to_shape: tuple[int, int, int]
    source_shape: tuple[int, int, int]
    source_strides: tuple[int, int, int]
    to_strides: tuple[int, int, int]


if _core is not None and _core.with_cuda and _Copy._fields != _core.strided_copy_fields:
    raise ImportError(f"the compiled core reads {_core.strided_copy_fields}; rebuild it")


class StridedCopies:
    """Collects many small copies and runs them in one launch. No two may write the same element."""

    def __init__(self) -> None:
        self._copies: list[_Copy] = []
        self._alive: list[Tensor] = []  # tensors whose memory must stay alive until the launch

    def add(self, to: Tensor, source: Tensor | None = None, fill: float = 0.0) -> None:
        """Copies `source` to `to` and sets the elements of `to` outside `source` to `fill`. Both have the same
        1 to 3 dimensions."""
        if to.dtype not in COPIED:
            raise ValueError(f"copy to {to.dtype}; accepted: float32, bfloat16")
        if source is not None:
            source = source if source.dtype in COPIED else source.to(to.dtype)
            source = source.resolve_neg()
        nothing = (0, 0, 0)
        self._copies.append(
            _Copy(
                address(source),
                address(to),
                source is None or source.dtype == torch.float32,
                to.dtype == torch.float32,
                fill,
                _three(to.shape, 1),
                nothing if source is None else _three(source.shape, 1),
                nothing if source is None else _three(source.stride(), 0),
                _three(to.stride(), 0),
            )
        )
        self._alive += [to] if source is None else [to, source]

    def widened(self, source: Tensor, width: int) -> Tensor:
        """A dense copy, zero-padded to that width. `run` fills it."""
        to = source.new_empty(*source.shape[:-1], width)
        self.add(to, source)
        return to

    def dense(self, source: Tensor, dtype: torch.dtype) -> Tensor:
        """A dense copy in that dtype. If there is a copy kernel for the dtype, `run` fills it."""
        if dtype not in COPIED:
            return source.to(dtype, memory_format=torch.contiguous_format)
        to = torch.empty(source.shape, dtype=dtype, device=source.device)
        self.add(to, source)
        return to

    def run(self, device: torch.device) -> None:
        """Launches the collected copies on the current stream and clears the list."""
        if self._copies:
            with torch.cuda.device(device):
                _core.run_copies_cuda(copies=self._copies, stream=current_stream(device))
        self._copies, self._alive = [], []


def _three(sizes: Sequence[int], missing: int) -> tuple[int, int, int]:
    i, j, k = (missing,) * (3 - len(sizes)) + tuple(sizes)
    return i, j, k
