"""Checks of the arguments of a layer, and of the arrays that implementations pass to the compiled core.

Values are only checked on the CPU, to avoid synchronising with a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ..cells import Cell
from ..common.torch_private import autocast_enabled
from .contract import LayerCall
from .core import cell_info, rows_of_u


def _readable(tensor: Tensor) -> bool:
    """Whether the values can be read: not during tracing and not on a GPU."""
    return tensor.device.type == "cpu" and tensor.numel() > 0 and not torch.compiler.is_compiling()


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
LONGEST_DT = 1e30
"""Ages are sums of dt; with this limit they fit into a float32."""


def _tensor(name: str, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} = {value!r}; accepted: a tensor or a list of numbers") from error


def check_input(x: Tensor, input_size: int, dtype: torch.dtype) -> None:
    if isinstance(x, PackedSequence):
        raise ValueError(
            f"x is a PackedSequence; accepted: [B, T, {input_size}] with lengths=, or a layer of tsm.nn"
        )
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[-1] != input_size:
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"x has shape {got}; accepted: [B, T, {input_size}]")
    if x.dtype == dtype:
        return
    autocast = autocast_enabled(x.device)
    if not autocast or x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        also = " or, under autocast, float32, bfloat16, float16" if autocast else ""
        raise ValueError(f"x is {x.dtype}; accepted: the layer's {dtype}{also}")


def check_state(
    state: Mapping[str, Tensor], cell: type[Cell], widths: Mapping[str, int], batch: int
) -> Mapping[str, Tensor]:
    if not isinstance(state, Mapping):
        raise ValueError(
            f"state is a {type(state).__name__}; accepted: a dict of {', '.join(cell.states)}"
        )
    if set(state) != set(cell.states):
        raise ValueError(
            f"state has {sorted(state)}; accepted for cell {cell.name!r}: {sorted(cell.states)}"
        )
    for name, width in widths.items():
        value = state[name]
        if not isinstance(value, Tensor):
            raise ValueError(f"state[{name!r}] is a {type(value).__name__}; accepted: a tensor")
        if not value.is_floating_point() or tuple(value.shape) != (batch, width):
            raise ValueError(
                f"state[{name!r}] is {value.dtype} {tuple(value.shape)}; "
                f"accepted: a float tensor [{batch}, {width}]"
            )
    return state


def check_lengths(lengths: Tensor | Sequence[int], batch: int, steps: int) -> Tensor:
    lengths = _tensor("lengths", lengths)
    if lengths.dtype not in _INTEGERS or tuple(lengths.shape) != (batch,):
        raise ValueError(
            f"lengths is {lengths.dtype} {tuple(lengths.shape)}; accepted: integers [{batch}]"
        )
    if _readable(lengths):
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > steps:
            raise ValueError(f"lengths has {low if low < 0 else high}; accepted: 0 to T = {steps}")
    return lengths


def after_end(lengths: Tensor, steps: int) -> Tensor:
    """bool [B,T]: the padding of each row."""
    return torch.arange(steps, device=lengths.device) >= lengths[:, None]


def check_dt(
    dt: Tensor | float,
    cell: type[Cell],
    options: Mapping[str, Any],
    batch: int,
    steps: int,
    dtype: torch.dtype = torch.float64,
    time_major: bool = False,
    lengths: Tensor | None = None,
) -> Tensor:
    """dt [B,T] in the given dtype, from a number or a tensor that broadcasts to it. The padding after `lengths`
    may hold anything.

    time_major: errors describe dt as [T,B], as the caller passed it.
    """
    if not cell.takes_dt:
        raise ValueError(f"dt was given, but cell {cell.name!r} takes none")
    dt = _tensor("dt", float(dt) if type(dt) is int else dt)
    if not dt.is_floating_point() or not _broadcasts(dt.shape, (batch, steps)):
        turn = -1 if time_major else 1
        column, whole = [batch, 1][::turn], [batch, steps][::turn]
        raise ValueError(
            f"dt is {dt.dtype} {tuple(dt.shape)[::turn]}; accepted: a number, or a float tensor "
            f"[{steps}], {column} or {whole}"
        )
    dt = dt.to(dtype)
    if lengths is not None and dt.dim():
        padding = after_end(lengths.to(dt.device), steps)[:, : dt.shape[-1]]
        dt = dt.expand(padding.shape).masked_fill(padding, 1.0)
    if _readable(dt):
        bad = ~((dt > 0) & (dt <= LONGEST_DT))
        if bool(bad.any()):
            at = bad.nonzero()[0].tolist()
            place = f" at {at[:: -1 if time_major else 1]}" * (len(at) > 1)
            raise ValueError(
                f"dt has {dt[bad][0].item():g}{place}; accepted: finite numbers above 0, up to "
                f"{LONGEST_DT:g}"
            )
        least, shortest = cell.shortest_dt(options), dt.min().item()
        if shortest < least * (1 - 1e-6):  # eps may have been rounded to the dtype of dt
            raise ValueError(
                f"dt has {shortest:g}; accepted: {least:g} (the cell's eps) or more, or a smaller eps"
            )
    return dt.expand(batch, steps)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Whether a tensor of this shape can be broadcast to the other."""
    ends = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, end) for size, end in ends)


def check_starts(
    cell: type[Cell], options: Mapping[str, Any], starts: Mapping[str, Sequence[float]]
) -> dict[str, tuple[float, float]]:
    """Checks the start ranges of learned vectors: each must lie inside the vector's own range."""
    for name, given in starts.items():
        vector = cell.vectors.get(name)
        if vector is None or options[name] is not None:
            raise ValueError(
                f"{name} of cell {cell.name!r} is not learned: it has no range to start from"
            )
        low, high = vector.start
        if len(given) != 2 or not low <= given[0] < given[1] <= high:
            raise ValueError(
                f"start of {name} = {tuple(given)}; accepted: two numbers, {low:g} <= low < high <= {high:g}"
            )
    return {name: (float(low), float(high)) for name, (low, high) in starts.items()}


def check_inputs(
    call: LayerCall,
    x: Tensor,
    weight_x: Tensor,
    bias: Tensor | None,
    weight_h: Tensor,
    state: Sequence[Tensor],
    vectors: Sequence[Tensor],
) -> None:
    """Checks shapes and devices. Dtypes may differ, since implementations convert. bias: None if not read."""
    batch, steps, inputs, hidden = call.shape
    width, count = cell_info(call.cell)["gates"] * hidden, cell_info(call.cell)["vectors"]
    if not len(vectors) == len(call.links) == count:
        raise ValueError(f"{len(vectors)} vectors, {len(call.links)} links; accepted: {count}")
    expect(x, "x", x, x.dtype, batch, steps, inputs)
    expect(x, "weight_x", weight_x, weight_x.dtype, width, inputs)
    expect(x, "bias", bias, x.dtype if bias is None else bias.dtype, width)
    expect(x, "weight_h", weight_h, weight_h.dtype, rows_of_u(call.cell, hidden), hidden)
    for one in state:
        expect(x, "a state", one, one.dtype, batch, hidden)
    for vector in vectors:
        expect(x, "a vector", vector, vector.dtype, hidden)


def check_times(call: LayerCall, like: Tensor, dt: Tensor | None, lengths: Tensor | None) -> None:
    expect(like, "dt", dt, call.state_dtype, *call.shape[:2])
    expect(like, "lengths", lengths, torch.int64, call.shape[0])


def refuse(what: str) -> NoReturn:
    raise NotImplementedError(
        f'{what} is not available in the compiled layer; build the layer with backend="reference"'
    )


def refuse_script(layer: Any) -> NoReturn:
    """A layer's `__prepare_scriptable__`, which torch.jit.script calls."""
    raise NotImplementedError(
        f"torch.jit.script cannot compile {type(layer).__name__}; accepted: torch.jit.trace, "
        "torch.export.export, or tsm-export torchscript for a model of tsm-train"
    )


def expect(like: Tensor, name: str, tensor: Tensor | None, dtype: torch.dtype, *shape: Any) -> None:
    """Raises ValueError unless an array read by the core has the expected device, dtype and shape."""
    if tensor is None:
        return
    if tensor.device != like.device or tensor.dtype != dtype or tensor.shape != shape:
        raise ValueError(
            f"{name} is {tensor.dtype} {tuple(tensor.shape)} on {tensor.device}; "
            f"accepted: {dtype} {shape} on {like.device}"
        )
