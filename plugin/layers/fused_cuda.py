"""The recurrence on a GPU, behind the operator of `fused_operator.py`: which kernels run, and on what memory.

Two ways. *Teams*: the whole sequence in one launch with U on the chip (cpp/src/kernels/cuda/train/plan.h).
*Steps*, for a layer that does not fit: a product by torch and one element-wise kernel a step.
Tensors have been checked by the caller. What forward keeps for backward has a shape of its own in each way.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .core import _core

UNIT_MULTIPLE = 8  # the kernels read 16 bytes at a time, and so do fast products
DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def why_not(dtype: torch.dtype) -> str | None:
    """None where a GPU has kernels for that dtype, else the reason that it has none."""
    if not _core.with_cuda:
        return "the compiled core was built without CUDA"
    if dtype not in DTYPES:
        return f"dtype {dtype} has no kernel on cuda (there are {', '.join(DTYPES.values())})"
    return None


def widened(hidden: int) -> int:
    """The next whole number of 16-byte pieces, in bfloat16 numbers."""
    return -(-hidden // UNIT_MULTIPLE) * UNIT_MULTIPLE


def takes_teams(
    cell: str, dtype: torch.dtype, device: torch.device, batch: int, hidden: int
) -> bool:
    """Whether a layer runs as teams: on that device's chip both ways."""
    if dtype not in DTYPES or hidden % UNIT_MULTIPLE or not _core.cuda_device_count():
        return False
    size, kind, at = _core.recurrence_cuda_workspace, DTYPES[dtype], _ordinal(device)
    return all(size(cell, kind, at, batch, hidden, backward) >= 0 for backward in (False, True))


def _ordinal(device: torch.device) -> int:
    return torch.cuda.current_device() if device.index is None else device.index


def is_dense(tensor: Tensor) -> bool:
    """Contiguous, from an address that the kernels can read 16 bytes at."""
    return tensor.is_contiguous() and tensor.data_ptr() % 16 == 0


def dense(tensor: Tensor | None) -> Tensor | None:
    """The tensor, or a copy of it that is dense."""
    if tensor is None or is_dense(tensor):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def kept(
    dtype: torch.dtype,
    device: torch.device,
    cell: str,
    batch: int,
    steps: int,
    hidden: int,
    keep: bool,
) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    """What backward needs: dtype and shape of z and of trail, empty unless `keep`."""
    info = _core.cells[cell]
    width = info["gates"] * hidden
    if not takes_teams(cell, dtype, device, batch, hidden):  # time first: a step is one piece
        rows = steps if keep else 0
        return [
            (torch.float32, (rows, batch, width)),
            (torch.float32, (rows, info["states"], batch, hidden)),
        ]
    rows = batch if keep else 0
    reads = int(info["reads"]).bit_count()
    return [(dtype, (rows, steps, width)), (torch.float32, (reads, rows, steps, hidden))]


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _stream(tensor: Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream


def _workspace(cell: str, like: Tensor, batch: int, hidden: int, backward: bool) -> Tensor:
    at = _ordinal(like.device)
    size = _core.recurrence_cuda_workspace(cell, DTYPES[like.dtype], at, batch, hidden, backward)
    return torch.empty(max(size, 16), dtype=torch.uint8, device=like.device)


def team_forward(
    cell: str,
    constants: list[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    arrays: Sequence[Tensor | None],
    keep: tuple[Tensor, Tensor] | None,
) -> None:
    """arrays: zx, weight_h, state, vectors, dt, lengths, y, last; keep: z (may be zx) and trail.

    shape: B, T, H. pitch: steps from one row of zx, y, z and trail to the next. y_step: numbers from one step
    of y to the next. dt and lengths are dense.
    """
    batch, _, hidden = shape
    like = arrays[1]
    assert like is not None
    with torch.cuda.device(like.device):
        scratch = _workspace(cell, like, batch, hidden, False)
        every = map(_address, [*arrays, *(keep or (None, None)), scratch])
        kind = DTYPES[like.dtype]
        _core.recurrence_forward_cuda(
            cell, kind, constants, *shape, pitch, y_step, *every, _stream(like)
        )


def team_backward(
    cell: str,
    constants: list[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    arrays: Sequence[Tensor | None],
) -> None:
    """arrays: weight_h, vectors, dt, lengths, z, trail, grad_y, grad_last, grad_z, grad_state, grad_vectors.

    The last is [K,B,H]: the caller sums over the batch. grad_y [B,T,y_step] is dense and may have fewer units
    than H; the others' rows are pitch steps. grad_z may be z; of a step past T it is 0.
    """
    batch, _, hidden = shape
    like = arrays[0]
    assert like is not None
    with torch.cuda.device(like.device):
        scratch = _workspace(cell, like, batch, hidden, True)
        every = map(_address, [*arrays, scratch])
        kind = DTYPES[like.dtype]
        _core.recurrence_backward_cuda(
            cell, kind, constants, *shape, pitch, y_step, *every, _stream(like)
        )


def run_forward(
    cell: str,
    constants: list[float],
    inputs: list[Tensor | None],
    outputs: tuple[Tensor, Tensor, Tensor, Tensor],
    keep: bool,
) -> None:
    """inputs: zx, weight_h, state, vectors, dt, lengths, dense; outputs: y, last, z, trail."""
    zx, state = inputs[0], inputs[2]
    y, last, z, trail = outputs
    assert zx is not None and state is not None
    batch, steps, hidden = y.shape
    if not y.numel():
        last.copy_(state)
    elif takes_teams(cell, zx.dtype, zx.device, batch, hidden):
        arrays = (*map(dense, inputs), y, last)
        shape, keep_in = (batch, steps, hidden), (z, trail) if keep else None
        team_forward(cell, constants, shape, steps, hidden, arrays, keep_in)
    else:
        with torch.cuda.device(zx.device), torch.autocast("cuda", enabled=False):
            _step_forward(cell, constants, inputs, outputs, keep)


def run_backward(
    cell: str,
    constants: list[float],
    inputs: list[Tensor | None],
    shape: tuple[int, int, int],
    outputs: tuple[Tensor, Tensor, Tensor],
) -> None:
    """inputs: weight_h, vectors, dt, lengths, z, trail, grad_y, grad_last, dense.

    outputs: grad_z, grad_state, grad_vectors.
    """
    weight_h, grad_last = inputs[0], inputs[7]
    assert weight_h is not None
    batch, steps, hidden = shape
    grad_z, grad_state, grad_vectors = outputs
    if not grad_z.numel():
        grad_vectors.zero_()
        grad_state.zero_() if grad_last is None else grad_state.copy_(grad_last)
        return
    by_row = grad_state.new_empty(grad_vectors.shape[0], batch, hidden)
    if takes_teams(cell, weight_h.dtype, weight_h.device, batch, hidden):
        arrays = (*map(dense, inputs), grad_z, grad_state, by_row)
        team_backward(cell, constants, shape, steps, hidden, arrays)
    else:
        with torch.cuda.device(weight_h.device), torch.autocast("cuda", enabled=False):
            _step_backward(cell, constants, inputs, shape, grad_z, grad_state, by_row)
    torch.sum(by_row, 1, out=grad_vectors)


def _step_forward(
    cell: str,
    constants: list[float],
    inputs: list[Tensor | None],
    outputs: tuple[Tensor, Tensor, Tensor, Tensor],
    keep: bool,
) -> None:
    zx, weight_h, state, vectors, dt, lengths = inputs
    assert zx is not None and weight_h is not None and state is not None
    y, last, z, trail = outputs
    batch, steps, hidden = y.shape
    stream, transposed = _stream(zx), weight_h.t()
    now, after = state.clone(), torch.empty_like(state)
    one = zx.new_empty(batch, zx.shape[2], dtype=torch.float32)
    for t in range(steps):
        z_t = z[t] if keep else one
        if keep:
            trail[t].copy_(now)
        if zx.dtype == torch.float32:
            torch.addmm(zx[:, t], now[0], transposed, out=z_t)
        else:
            torch.add(zx[:, t], now[0].to(zx.dtype) @ transposed, out=z_t)
        dt_t = None if dt is None else dt[:, t].contiguous()
        arrays = map(_address, (z_t, now, vectors, dt_t, after))
        _core.step_forward_cuda(cell, constants, batch, hidden, *arrays, stream)
        if lengths is not None:
            on = (t < lengths)[:, None]
            torch.where(on, after, now, out=after)
            y[:, t] = torch.where(on, after[0], 0.0)
        else:
            y[:, t] = after[0]
        now, after = after, now
    last.copy_(now)


def _step_backward(
    cell: str,
    constants: list[float],
    inputs: list[Tensor | None],
    shape: tuple[int, int, int],
    grad_z: Tensor,
    grad_state: Tensor,
    by_row: Tensor,
) -> None:
    weight_h, vectors, dt, lengths, z, trail, grad_y, grad_last = inputs
    assert weight_h is not None and z is not None and trail is not None
    batch, steps, hidden = shape
    stream = _stream(weight_h)
    d = torch.zeros_like(grad_state) if grad_last is None else grad_last.clone()
    dz, before = z.new_empty(batch, grad_z.shape[2]), torch.empty_like(d)
    one_step = torch.empty_like(by_row)
    by_row.zero_()
    for t in reversed(range(steps)):
        on = None if lengths is None else (t < lengths)[:, None]
        held = d
        if grad_y is not None:
            d = d.clone() if on is not None else d
            d[0] += grad_y[:, t]
        dt_t = None if dt is None else dt[:, t].contiguous()
        arrays = map(_address, (z[t], trail[t], vectors, dt_t, d, dz, before, one_step))
        _core.step_backward_cuda(cell, constants, batch, hidden, *arrays, stream)
        if on is not None:
            dz.mul_(on)
            torch.where(on, before, held, out=before)
            by_row += one_step * on
        else:
            by_row += one_step
        grad_z[:, t] = dz
        before[0] += grad_z[:, t].to(weight_h.dtype) @ weight_h
        d, before = before, torch.empty_like(before) if on is not None else d
    grad_state.copy_(d)
