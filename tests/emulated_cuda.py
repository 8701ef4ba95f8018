"""The core's CUDA functions, emulated on the CPU: same named arguments, same layouts, but with addresses of
host memory.

They are slow but simple. With them, the Python side of a GPU layer (layouts, matrix products, gradients) runs
without a GPU; tests marked gpu check that the kernels give the same results.
"""

from __future__ import annotations

import ctypes
import math
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from torch import Tensor

from tsm.plugin.cells import get_cell
from tsm.plugin.cells.tape.torch_ops import TorchOps
from tsm.plugin.layers import gpu, layer_cuda, linear, nru_cuda, sketch
from tsm.plugin.layers.parameters import raw_gradients, value_of
from tsm.runtime import _core

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WORKSPACE = 16  # bytes


def install(monkeypatch) -> None:
    """From now on `layer_cuda` and `linear` run on CPU tensors."""
    core = SimpleNamespace(
        cells=_core.cells,
        with_cuda=True,
        cuda_device_count=lambda: 1,
        recurrence_cuda_path=lambda device: "emulated",
        has_products=lambda: True,
        plan_version=lambda: -1,  # what is described here stays apart from the real core's
        Launches=Launches,
        Nru=Nru,
    )
    for module in (gpu, layer_cuda, nru_cuda, sketch):
        monkeypatch.setattr(module, "_core", core)
    for module in (layer_cuda, linear, nru_cuda):
        monkeypatch.setattr(module, "current_stream", lambda device: 0)
    nru_cuda._prepared.cache_clear()
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)


def stand_in(monkeypatch, module, **functions) -> None:
    """From now on a module that calls functions of the core has these instead, for CPU tensors."""
    monkeypatch.setattr(module, "_core", SimpleNamespace(**functions))
    monkeypatch.setattr(gpu, "has_kernels", lambda dtype, device: True)
    monkeypatch.setattr(module, "current_stream", lambda device: 0)


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
        for (_, _, shape, _), source, _, _ in copies:
            assert source is None or all(n <= m for n, m in zip(source[2], shape, strict=True))
        self.all.append(lambda place: run_copies(copies, place))

    def link_vectors(self, *, values, raw, units, pitch) -> None:
        def launch(place) -> None:
            to = dense(place(values), len(raw), pitch).fill_(1)
            for n, (where, wide, step, link) in enumerate(raw):
                kind = torch.float32 if wide else torch.bfloat16
                to[n, :units] = value_of(link, at(place(where), (units,), (step,), kind))

        self.all.append(launch)

    def vector_gradients(self, *, by_row, values, of_raw, links, rows, units, pitch) -> None:
        def launch(place) -> None:
            count = len(links)
            sums = dense(place(by_row), count, rows, pitch)[..., :units].sum(1).flatten()
            of = dense(place(values), count, pitch)[:, :units].flatten()
            found = raw_gradients(links, sums, of)
            dense(place(of_raw), count, units)[:] = torch.stack(found)

        self.all.append(launch)

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

    for to, source, fill, mask in copies:
        tensor(to).fill_(fill)
        if source is None:
            continue
        values = tensor(source)
        if mask is not None:
            where, strides, scale = mask
            factors = at(place(where), source[2], strides, torch.bool).float() * scale
            values = values.float() * factors
        tensor(to)[tuple(slice(n) for n in source[2])] = values


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


class Nru:
    """The core's class of this name: one direction of the recurrence of nru."""

    workspace = WORKSPACE

    def __init__(self, *, device, dtype, shape, tf32, backward) -> None:
        self.dtype, self.backward = DTYPES[dtype], backward
        self.B, self.T, self.H, self.M, self.heads, self.parts = shape
        self.side = math.isqrt(self.M * self.heads)
        self.out = 2 * self.heads + 4 * self.side
        self.wide, self.m, self.o = (-(-n // 8) * 8 for n in (self.H, self.M, self.out))
        self.both = self.wide + self.parts * self.m
        self.line = self.both + 8

    def run(self, addresses, stream) -> None:
        D, B, T = self.dtype, self.B, self.T
        steps, lines = (B, T, self.wide), (B, T + 1)
        kinds = {
            "zx": (D, steps),
            "uv": (D, (self.wide, self.both)),
            "maps": (D, (self.o, self.line)),
            "norm": (torch.float32, (2, self.H)),
            "lengths": (torch.int64, (B,)),
            "z": (D, steps),
            "rows": (D, (B * (T + 1) + 1, self.line)),
            "out": (torch.float32, (B, T, self.o)),
            "h": (torch.float32, (B, self.H)),
            "m": (torch.float32, (B, self.m)),
            "dy": (D, (B, T, self.H)),
            "dh": (torch.float32, (B, self.H)),
            "dm": (torch.float32, (B, self.m)),
            "from_z": (torch.float32, (B, self.wide + self.m)),
            "from_out": (torch.float32, (B, self.line)),
            "dz": (D, (*lines, self.wide)),
            "dout": (D, (*lines, self.o)),
            "dnorm": (torch.float32, (2, B, self.H)),
        }
        names = list(kinds)[1:8] + list(kinds)[10:] if self.backward else list(kinds)[:10]
        given = SimpleNamespace()
        for name, place in zip(names, addresses[:-1], strict=True):
            dtype, shape = kinds[name]
            setattr(given, name, dense(place, *shape, dtype=dtype) if place else None)
        given.lengths = torch.full((B,), T) if given.lengths is None else given.lengths
        (self.run_backward if self.backward else self.run_forward)(given)

    def hidden(self, z: Tensor, norm: Tensor | None) -> Tensor:
        z = z[:, : self.H]
        if norm is not None:
            z = TorchOps.layer_norm(z) * norm[0] + norm[1]
        return torch.nn.functional.pad(torch.relu(z), (0, self.wide - self.H))

    def change(self, out: Tensor) -> Tensor:
        """What a step adds to m."""
        change = get_cell("nru").change(TorchOps, out[:, : self.out], self.heads, self.M)
        return torch.nn.functional.pad(change, (0, self.m - self.M))

    def shifted(self, rows: Tensor) -> Tensor:
        """[m, 1, 0..., h] of every step."""
        flat = rows.flatten()[self.wide :][: rows[:-1].numel()]
        return flat.view(self.B, self.T + 1, self.line)

    def run_forward(self, a) -> None:
        lines = a.rows[:-1].view(self.B, self.T + 1, self.line)
        for t in range(self.T):
            live = (t < a.lengths)[:, None]
            a.z[:, t] = a.zx[:, t].float() + lines[:, t, : self.both].float() @ a.uv.float().t()
            h = self.hidden(a.z[:, t].float(), a.norm)
            lines[:, t + 1, : self.wide] = torch.where(live, h, 0)
            a.h[:] = torch.where(live, h[:, : self.H], a.h)
            a.out[:, t] = self.shifted(a.rows)[:, t].float() @ a.maps.float().t()
            a.m[:] = torch.where(live, a.m + self.change(a.out[:, t]), a.m)
            rest, first = a.m, self.wide
            for _ in range(self.parts):
                lines[:, t + 1, first : first + self.m] = rest
                rest, first = rest - rest.to(self.dtype).float(), first + self.m

    def run_backward(self, a) -> None:
        assert (a.z is None) == (a.norm is None)
        lines = a.rows[:-1].view(self.B, self.T + 1, self.line)
        a.dz[:, self.T], a.dout[:, self.T] = 0, 0
        for t in reversed(range(self.T)):
            live, ends = (t < a.lengths)[:, None], (t + 1 == a.lengths)[:, None]
            a.dm += a.from_z[:, self.wide :] + a.from_out[:, : self.m]
            with torch.enable_grad():
                out = a.out[:, t].clone().requires_grad_()
                (dout,) = torch.autograd.grad(self.change(out), out, a.dm)
            a.dout[:, t] = torch.where(live, dout, 0)
            a.from_out[:] = a.dout[:, t].float() @ a.maps.float()
            dh = a.from_z[:, : self.wide] + a.from_out[:, self.both - self.wide + 8 :]
            if a.dy is not None:
                dh[:, : self.H] += a.dy[:, t].float()
            if a.dh is not None:
                dh[:, : self.H] += torch.where(ends, a.dh, 0)
            if a.norm is None:
                dz = dh * (lines[:, t + 1, : self.wide] > 0)
            else:
                with torch.enable_grad():
                    z, norm = (
                        a.z[:, t].float().requires_grad_(),
                        a.norm[:, None].repeat(1, self.B, 1),
                    )
                    norm.requires_grad_()
                    found = torch.autograd.grad(self.hidden(z, norm), (z, norm), live * dh)
                dz, dnorm = found
                a.dnorm += dnorm
            a.dz[:, t] = torch.where(live, dz, 0)
            a.from_z[:] = (a.dz[:, t].float() @ a.uv.float())[:, : self.wide + self.m]
