"""Layouts of inputs and outputs: packed, time-major, unbatched; and reversal in time."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..layers.checks import check_lengths


class Batch(NamedTuple):
    """x [B,T,I] with the rows in the order of the PackedSequence."""

    x: Tensor
    lengths: Tensor | None  # int64 [B] on x's device; None: every row has T steps
    packed: PackedSequence | None = None  # the input, if it was packed
    time_major: bool = False
    single: bool = False  # the input has no batch dimension

    def restore(self, y: Tensor) -> Tensor | PackedSequence:
        """y [B,T,..] in the layout of the input. It is dense, since callers often take views of it."""
        if self.packed is not None:
            lengths = _lengths(self.packed)
            data = pack_padded_sequence(y, lengths, batch_first=True).data
            return self.packed._replace(data=data)
        if self.single:
            return y[0].contiguous()
        return (y.transpose(0, 1) if self.time_major else y).contiguous()

    def rows(self, value: Tensor, axis: int) -> Tensor:
        """The caller's rows along an axis, reordered like x."""
        order = None if self.packed is None else self.packed.sorted_indices
        return value if order is None else value.index_select(axis, order)

    def caller_rows(self, value: Tensor, axis: int) -> Tensor:
        """The inverse of `rows`."""
        order = None if self.packed is None else self.packed.unsorted_indices
        return value if order is None else value.index_select(axis, order)

    def time_steps(self, dt: Any) -> Any:
        """dt as a layer takes it: [B,T] or broadcastable to it. The caller's dt is laid out like the input."""
        if isinstance(dt, PackedSequence):
            if self.packed is None or not torch.equal(dt.batch_sizes, self.packed.batch_sizes):
                raise ValueError(
                    "dt is a PackedSequence; accepted with an input that is packed the same way"
                )
            plain = PackedSequence(dt.data, dt.batch_sizes)
            return pad_packed_sequence(plain, batch_first=True, padding_value=1.0)[0]
        if not isinstance(dt, Tensor) or dt.dim() != 2:
            return dt
        if self.time_major:
            return dt.transpose(0, 1)
        return self.rows(dt, 0) if dt.shape[0] == self.x.shape[0] else dt


def open_batch(value: Any, batch_first: bool, input_size: int, lengths: Any) -> Batch:
    """The input of a layer, checked."""
    if isinstance(value, PackedSequence):
        if lengths is not None:
            raise ValueError("lengths was given with a PackedSequence; accepted: one of them")
        x, _ = pad_packed_sequence(PackedSequence(value.data, value.batch_sizes), batch_first=True)
        _check_width(x, input_size, "a PackedSequence of", 3)
        found = _lengths(value).to(x.device)
        ragged = int(value.batch_sizes[-1]) != int(value.batch_sizes[0])
        return Batch(x, found if ragged else None, value)
    if not isinstance(value, Tensor) or value.dim() not in (2, 3):
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        shape = "[B, T, {0}]" if batch_first else "[T, B, {0}]"
        raise ValueError(
            f"input is {got}; accepted: a tensor {shape.format(input_size)} or [T, {input_size}], or a "
            "PackedSequence"
        )
    _check_width(value, input_size, "", value.dim())
    single = value.dim() == 2
    x = value[None] if single else value if batch_first else value.transpose(0, 1)
    if lengths is not None:
        lengths = check_lengths(lengths, x.shape[0], x.shape[1]).to(x.device, torch.int64)
    return Batch(x, lengths, None, not batch_first and not single, single)


def _check_width(x: Tensor, input_size: int, kind: str, dims: int) -> None:
    if x.dim() != dims or x.shape[-1] != input_size:
        raise ValueError(
            f"input is {kind}{' ' * bool(kind)}{tuple(x.shape)}; accepted: {input_size} (input_size) "
            "in its last dimension"
        )


def _lengths(packed: PackedSequence) -> Tensor:
    """The lengths of the rows in the sequence's order, longest first: int64 [B] on the CPU."""
    sizes = packed.batch_sizes
    rows = torch.arange(int(sizes[0]))
    return (sizes[:, None] > rows).sum(0)


class Reversal:
    """Reverses each row from its last valid step to its first; padding stays in place."""

    def __init__(self, batch: Batch) -> None:
        self.lengths = batch.lengths
        if self.lengths is not None:
            self.lengths = self.lengths[:, None]
            self.steps = torch.arange(batch.x.shape[1], device=batch.x.device)

    def __call__(self, value: Tensor) -> Tensor:
        """[B,T,C] reversed in time; applying it twice gives the original."""
        if self.lengths is None:
            return value.flip(1)
        at = torch.where(self.steps < self.lengths, self.lengths - 1 - self.steps, self.steps)
        return value.gather(1, at[:, :, None].expand(-1, -1, value.shape[2]))

    def time_steps(self, dt: Tensor) -> Tensor:
        """dt [B,T] of the reversed sequence, in which step t follows step t + 1. The first keeps dt[:, 0]."""
        if self.lengths is None:
            return torch.cat([dt[:, :1], dt[:, 1:].flip(1)], 1)
        valid = self.steps < self.lengths
        at = torch.where(valid, (self.lengths - self.steps) % self.lengths.clamp(min=1), self.steps)
        return dt.gather(1, at)
