"""Launches on a GPU that are described once and run many times, on the arrays of each call.

A description uses tensors without memory (of the device "meta") in the place of the call's arrays, so that
views, slices and transpositions are torch's own. What a call then needs is one address per array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .core import DTYPES, _core
from .gpu import COPIED, allows_tf32, current_stream

KINDS_OF_CALLS = 1024
"""How many descriptions a function keeps, for use with lru_cache."""
ALIGNMENT = 256  # bytes, of arrays in a block
Kind: TypeAlias = tuple[torch.dtype, Sequence[int]]
"""Dtype and shape of an array."""
Given: TypeAlias = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Dtype, shape and strides of an array of the caller."""
Place: TypeAlias = tuple[int, int]
"""The index of an array of the call, and bytes from its start."""
Three: TypeAlias = tuple[int, int, int]
View: TypeAlias = tuple[Place, bool, Three, Three]
"""Where it begins, whether it is float32 (or else bfloat16), its shape and strides."""
Mask: TypeAlias = tuple[Place, Three, float]
"""Where it begins, its strides, and the factor of what it keeps."""


def block_offsets(arrays: Sequence[Kind]) -> tuple[list[int], int]:
    """Where arrays begin in a block of memory, and its size, in bytes. Sizes may be symbols."""
    offsets, end = [], 0
    for dtype, shape in arrays:
        offsets.append(end)
        end += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return offsets, end


class Sketch:
    """Collects the launches of one kind of call. `launches.run` takes the addresses of the arrays and blocks in
    the order in which they were made here, last the address of scratch memory."""

    def __init__(self, device: int) -> None:
        self.launches = _core.Launches(device=device)
        self.scratch_bytes = 0
        self._made: list[Tensor] = []  # keeps their storages alive, whose identity matters
        self._places: dict[int, Place] = {}  # storage -> where it begins
        self._count = 0
        self._copies: list[tuple[View, View | None, float, Mask | None]] = []

    def array(self, dtype: torch.dtype, shape: Sequence[int], strides: Any = None) -> Tensor:
        """An array of the call; by default it is dense."""
        self._count += 1
        return self._array(dtype, shape, (self._count - 1, 0), strides)

    def optional(self, like: Any) -> Tensor | None:
        """array(*like); if `like` is None, an array that the call does not have: its address is 0."""
        if like is not None:
            return self.array(*like)
        self._count += 1
        return None

    def block(self, arrays: Sequence[Kind]) -> list[Tensor]:
        """Arrays that are neighbours in one piece of memory (block_offsets says where)."""
        self._count += 1
        offsets, _ = block_offsets(arrays)
        return [
            self._array(*kind, (self._count - 1, offset))
            for kind, offset in zip(arrays, offsets, strict=True)
        ]

    def scratch(self, arrays: Sequence[Kind]) -> list[Tensor]:
        """The last array: a block whose contents are not kept, followed by the kernels' own memory. To be
        called once, before the first launch that needs memory."""
        self._workspace = (self._count, block_offsets(arrays)[1])
        self.scratch_bytes = self._workspace[1]
        return self.block(arrays)

    def _array(
        self, dtype: torch.dtype, shape: Sequence[int], place: Place, strides: Any = None
    ) -> Tensor:
        size = tuple(shape)
        if strides is None:
            made = torch.empty(size, dtype=dtype, device="meta")
        else:
            made = torch.empty_strided(size, strides, dtype=dtype, device="meta")
        self._made.append(made)
        self._places[made.untyped_storage()._cdata] = place
        return made

    def place(self, view: Tensor) -> Place:
        """Where a view of an array begins."""
        array, offset = self._places[view.untyped_storage()._cdata]
        return array, offset + int(view.storage_offset()) * view.dtype.itemsize

    def copy(
        self,
        to: Tensor,
        source: Tensor | None = None,
        fill: float = 0.0,
        mask: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        """Copies source to `to` and sets elements outside source to fill. Both have the same 1 to 3 dimensions.
        With a mask of bools, which is broadcast to source: source times scale where it is true, else times 0.
        `run_copies` launches all copies together; no two may write the same element."""
        masked = None
        if source is not None and mask is not None:
            masked = self.place(mask), _three(mask.expand_as(source).stride(), 0), scale
        view = None if source is None else self._view(source)
        self._copies.append((self._view(to), view, fill, masked))

    def _view(self, tensor: Tensor) -> View:
        if tensor.dtype not in COPIED:
            raise ValueError(f"copy of {tensor.dtype}; accepted: float32, bfloat16")
        sizes = _three(tensor.shape, 1), _three(tensor.stride(), 0)
        return self.place(tensor), tensor.dtype == torch.float32, *sizes

    def run_copies(self) -> None:
        if self._copies:
            self.launches.copies(self._copies)
        self._copies = []

    def link_vectors(self, values: Tensor, raw: Sequence[Tensor], links: Sequence[str]) -> None:
        """values [K, more] = link(raw [H]) of each, and 1 from H on."""
        given = [
            (self.place(r), r.dtype == torch.float32, r.stride(0), link)
            for r, link in zip(raw, links, strict=True)
        ]
        self.launches.link_vectors(
            values=self.place(values), raw=given, units=raw[0].shape[0], pitch=values.shape[1]
        )

    def vector_gradients(
        self, by_row: Tensor, values: Tensor, of_raw: Tensor, links: Sequence[str]
    ) -> None:
        """of_raw [K,H] from the gradients of the values [K,B,more] for each row."""
        self.launches.vector_gradients(
            by_row=self.place(by_row),
            values=self.place(values),
            of_raw=self.place(of_raw),
            links=links,
            rows=by_row.shape[1],
            units=of_raw.shape[1],
            pitch=by_row.shape[2],
        )

    def product(self, x: Tensor, w: Tensor, out: Tensor, tf32: bool) -> None:
        """out [n,m] = x [n,k] w [k,m]. Rows or columns of x and w are dense."""
        x_turned, w_turned = x.stride(1) != 1, w.stride(1) != 1
        steps = (x.stride(int(x_turned)), w.stride(int(w_turned)), out.stride(0))
        bytes_ = self.launches.product(
            x=self.place(x),
            w=self.place(w),
            out=self.place(out),
            workspace=self._workspace,
            sizes=(x.shape[0], w.shape[1], x.shape[1]),
            row_steps=steps,
            x_turned=x_turned,
            w_turned=w_turned,
            dtype=DTYPES[x.dtype],
            tf32=tf32,
        )
        self._need(bytes_)

    def recurrence(
        self,
        cell: str,
        dtype: torch.dtype,
        constants: Sequence[float],
        shape: tuple[int, int, int],
        pitch: int,
        y_step: int,
        tf32: bool,
        backward: bool,
        arrays: Mapping[str, Tensor | None],
    ) -> None:
        """The recurrence alone. shape: B, T, H. pitch: steps from one row of zx, y, z and saved_states to the
        next. y_step: elements from one step of y, or of its gradient, to the next. tf32: of its products.

        Forward: zx, weight_h, state, vectors, dt, lengths, y, last, z (may be zx), saved_states. Backward:
        weight_h, vectors, dt, lengths, z, saved_states, grad_y, grad_last, grad_z, grad_state, grad_vectors.
        grad_vectors is [K,B,H], to be summed over the batch. grad_y [B,T,y_step] is dense and may have fewer
        units than H. The rows of the others are pitch steps apart. grad_z may be z; after step T it is 0.
        """
        places = {name: None if a is None else self.place(a) for name, a in arrays.items()}
        bytes_ = self.launches.recurrence(
            cell=cell,
            dtype=DTYPES[dtype],
            constants=list(constants),
            shape=shape,
            pitch=pitch,
            y_step=y_step,
            tf32=tf32,
            backward=backward,
            arrays={**places, "workspace": self._workspace},
        )
        self._need(bytes_)

    def _need(self, workspace: int) -> None:
        self.scratch_bytes = max(self.scratch_bytes, self._workspace[1] + workspace)


def _three(sizes: Sequence[int], missing: int) -> Three:
    i, j, k = (missing,) * (3 - len(sizes)) + tuple(sizes)
    return i, j, k


def recurrence_once(
    cell: str,
    constants: Sequence[float],
    shape: tuple[int, int, int],
    pitch: int,
    y_step: int,
    backward: bool,
    weight_h: Tensor,
    **arrays: Tensor | None,
) -> None:
    """Runs only the recurrence, for measurements and checks. The arguments are those of Sketch.recurrence."""
    arrays["weight_h"] = weight_h
    sketch = Sketch(weight_h.get_device())
    made = {
        name: None if t is None else sketch.array(t.dtype, t.shape, t.stride())
        for name, t in arrays.items()
    }
    sketch.scratch([])
    dtype = weight_h.dtype
    sketch.recurrence(
        cell, dtype, constants, shape, pitch, y_step, allows_tf32(dtype), backward, made
    )
    device = weight_h.device
    scratch = torch.empty(sketch.scratch_bytes, dtype=torch.uint8, device=device)
    given = [t for t in (*arrays.values(), scratch) if t is not None]
    sketch.launches.run(tuple(t.data_ptr() for t in given), current_stream(device))
