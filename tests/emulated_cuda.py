"""The core's CUDA functions, emulated on the CPU: same named arguments, same layouts, but with addresses of
host memory.

They are slow but simple. With them, the Python side of a GPU layer (layouts, matrix products, gradients) runs
without a GPU; tests marked gpu check that the kernels give the same results.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import Tensor

from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.torch_ops import TorchOps
from tsm.plugin.layers import layer_cuda, sketch
from tsm.runtime import _core

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WORKSPACE = 16  # bytes


def install(monkeypatch) -> None:
    """From now on `layer_cuda` runs on CPU tensors."""
    core = SimpleNamespace(
        cells=_core.cells,
        with_cuda=True,
        cuda_device_count=lambda: 1,
        recurrence_cuda_path=lambda device: "emulated",
        has_products=lambda: True,
        plan_version=lambda: -1,  # what is described here stays apart from the real core's
        Launches=Launches,
    )
    for module in (layer_cuda, sketch):
        monkeypatch.setattr(module, "_core", core)
    monkeypatch.setattr(layer_cuda, "current_stream", lambda device: 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def at(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> Tensor:
    """The memory at an address as a tensor; strides are in elements."""
    count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)


def dense(address: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return at(address, shape, torch.empty(shape, device="meta").stride(), dtype)


class Launches:
    """The core's class of this name: launches that are described once."""

    def __init__(self, *, device: int) -> None:
        self.all = []

    def copies(self, copies) -> None:
        for (_, _, shape, _), source, _ in copies:
            assert source is None or all(n <= m for n, m in zip(source[2], shape, strict=True))
        self.all.append(lambda place: run_copies(copies, place))

    def product(self, **given) -> int:
        self.all.append(lambda place: run_product(given, place))
        return WORKSPACE

    def recurrence(self, *, arrays, shape, backward, **given) -> int:
        sizes = dict(zip(("batch", "steps", "hidden"), shape, strict=True))
        run = recurrence_backward if backward else recurrence_forward

        def launch(place) -> None:
            assert place(arrays["workspace"])
            run(**given, **sizes, **{name: place(array) for name, array in arrays.items()})

        self.all.append(launch)
        return WORKSPACE

    def run(self, addresses, stream) -> None:
        def place(where) -> int:
            if where is None or not addresses[where[0]]:
                return 0
            return addresses[where[0]] + where[1]

        for launch in self.all:
            launch(place)


def run_copies(copies, place) -> None:
    def tensor(view) -> Tensor:
        where, wide, shape, strides = view
        return at(place(where), shape, strides, torch.float32 if wide else torch.bfloat16)

    for to, source, fill in copies:
        tensor(to).fill_(fill)
        if source is not None:
            tensor(to)[tuple(slice(n) for n in source[2])] = tensor(source)


def run_product(given, place) -> None:
    n, m, k = given["sizes"]
    x_step, w_step, out_step = given["row_steps"]
    dtype = DTYPES[given["dtype"]]
    x = (
        at(place(given["x"]), (k, n), (x_step, 1), dtype).t()
        if given["x_turned"]
        else at(place(given["x"]), (n, k), (x_step, 1), dtype)
    )
    w = (
        at(place(given["w"]), (m, k), (w_step, 1), dtype).t()
        if given["w_turned"]
        else at(place(given["w"]), (k, m), (w_step, 1), dtype)
    )
    at(place(given["out"]), (n, m), (out_step, 1), dtype)[:] = x.float() @ w.float()


class Arrays:
    """The arrays of one call of the recurrence, by name."""

    def __init__(self, given: dict) -> None:
        self.__dict__ |= given
        self.kind = get_cell(given["cell"])
        self.info = _core.cells[given["cell"]]
        self.dtype_ = DTYPES[given["dtype"]]
        B, T, H = given["batch"], given["steps"], given["hidden"]
        G, K = self.info["gates"], self.info["vectors"]
        self.u = torch.zeros(G * H, H)  # a cell without U
        if given["weight_h"]:
            self.u = dense(given["weight_h"], G * H, H, dtype=self.dtype_).float()
        self.values = dense(given["vectors"], K, H) if K else torch.empty(0, H)
        self.dts = dense(given["dt"], B, T) if given["dt"] else None
        self.lengths_ = torch.full((B,), T)
        if given["lengths"]:
            self.lengths_ = dense(given["lengths"], B, dtype=torch.int64)
        self.read = [i for i in range(self.info["states"]) if self.info["reads"] >> i & 1]

    def rows(self, address: int, width: int, dtype: torch.dtype | None = None) -> Tensor:
        """[B,T,width], rows `pitch` steps apart."""
        strides = (self.pitch * width, width, 1)
        return at(address, (self.batch, self.steps, width), strides, dtype or self.dtype_)

    def step(self, z: Tensor, state: list[Tensor], values: Tensor, t: int) -> list[Tensor]:
        named = dict(zip(self.kind.states, state, strict=True))
        vectors = dict(zip(self.kind.vectors, values, strict=True))
        options = dict(zip(self.kind.constants, self.constants, strict=True))
        dt = 1.0 if self.dts is None else self.dts[:, t, None]
        weights = {"weight_h": torch.zeros_like(self.u)}
        new = self.kind.advance(TorchOps, z, named["h"], weights, named, vectors, options, dt)
        return [new[name] for name in self.kind.states]


def recurrence_forward(**given) -> None:
    a = Arrays(given)
    B, T, H = a.batch, a.steps, a.hidden
    GH = a.info["gates"] * H
    zx = a.rows(given["zx"], GH)
    y = at(given["y"], (B, T, H), (a.pitch * a.y_step, a.y_step, 1), a.dtype_)
    state = list(dense(given["state"], a.info["states"], B, H).clone())
    for t in range(T):
        live = (t < a.lengths_)[:, None]
        z = zx[:, t].float() + state[0].to(a.dtype_).float() @ a.u.t()
        if given["saved_states"]:
            shape = (len(a.read), B, a.pitch, H)
            for n, i in enumerate(a.read):
                dense(given["saved_states"], *shape)[n, :, t] = state[i]
        new = a.step(z, state, a.values, t)
        state = [torch.where(live, after, before) for after, before in zip(new, state, strict=True)]
        y[:, t] = torch.where(live, new[0], 0.0)
        if given["z"]:
            a.rows(given["z"], GH)[:, t] = z
    dense(given["last"], a.info["states"], B, H)[:] = torch.stack(state)


def recurrence_backward(**given) -> None:
    a = Arrays(given)
    B, T, H = a.batch, a.steps, a.hidden
    S, K, GH = a.info["states"], a.info["vectors"], a.info["gates"] * H
    z, dz = a.rows(given["z"], GH).clone(), a.rows(given["grad_z"], GH)
    saved = dense(given["saved_states"], len(a.read), B, a.pitch, H)
    d = (
        list(dense(given["grad_last"], S, B, H).clone())
        if given["grad_last"]
        else [torch.zeros(B, H)] * S
    )
    by_row = torch.zeros(K, B, H)
    units = min(a.y_step, H)
    for t in reversed(range(T)):
        live = (t < a.lengths_)[:, None]
        h = d[0].clone()
        if given["grad_y"]:
            grad_y = at(given["grad_y"], (B, T, units), (T * a.y_step, a.y_step, 1), a.dtype_)
            h[:, :units] += grad_y[:, t].float()
        z_t = z[:, t].float().requires_grad_()
        before = [torch.zeros(B, H) for _ in range(S)]
        for n, i in enumerate(a.read):
            before[i] = saved[n, :, t].clone()
        before = [state.requires_grad_() for state in before]
        values = a.values[:, None].expand(K, B, H).clone().requires_grad_()
        with torch.enable_grad():
            new = a.step(z_t, before, values, t)
            found = torch.autograd.grad(new, [z_t, *before, values], [h, *d[1:]], allow_unused=True)
        found = [
            torch.zeros_like(x) if g is None else g
            for g, x in zip(found, [z_t, *before, values], strict=True)
        ]
        dz[:, t] = torch.where(live, found[0], 0.0)
        rounded = dz[:, t].float()
        earlier = [found[1] + rounded @ a.u, *found[2 : S + 1]]
        d = [torch.where(live, new_d, old) for new_d, old in zip(earlier, d, strict=True)]
        by_row += torch.where(live, found[-1], 0.0)
    if a.pitch > T:  # of a step past T it is 0
        at(given["grad_z"], (B, a.pitch, GH), (a.pitch * GH, GH, 1), a.dtype_)[:, T:] = 0
    dense(given["grad_state"], S, B, H)[:] = torch.stack(d)
    if K:
        dense(given["grad_vectors"], K, B, H)[:] = by_row
