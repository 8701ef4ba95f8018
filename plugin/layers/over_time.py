"""A cell over time without parameters of its own: `run` computes a layer from the caller's weights.

`Recurrent` owns the weights of one layer, `tsm.nn.RNN` those of a stack under torch's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import Cell, get_cell
from ..common.checks import check_integer
from ..common.device import BACKENDS
from ..common.torch_private import autocast_enabled
from . import nru_cuda
from .checks import after_end, check_dt, check_input, check_lengths, check_state
from .choose import Route, choose
from .contract import LayerCall, state_dtype_of
from .dropout import drop_mask, dropped, kept_scale
from .operator import needs_operator, run_function, run_operator
from .parameters import all_rows, value_of
from .reference import reference_recurrence

States = dict[str, Tensor]
"""Name -> [B, width]."""


class Numbers(NamedTuple):
    """The weights of a layer."""

    weight_x: Tensor  # [G*H, I], gates in the cell's order
    bias: Tensor  # [G*H]
    weight_h: Tensor  # [G*H, H], or [0, H] for a cell without U
    raw: Sequence[Tensor] = ()  # [H] each: the cell's vectors before their links
    others: Mapping[str, Tensor] = {}  # other weights of a composite cell
    dropout: tuple[float, float] = (0.0, 0.0)  # rates of x and weight_h in this call


class CellOverTime:
    """Cell, units, options and backend of a layer."""

    def __init__(
        self,
        cell: str,
        hidden_size: int,
        backend: str,
        options: Mapping[str, Any],
    ) -> None:
        super().__init__()
        check_integer("hidden_size", hidden_size)
        if backend not in BACKENDS:
            raise ValueError(f"backend = {backend!r}; accepted: {', '.join(BACKENDS)}")
        self.cell: type[Cell] = get_cell(cell)
        self.hidden_size = hidden_size
        self.options = self.cell.check(hidden_size, options)
        self.widths = self.cell.widths(hidden_size, self.options)
        self.backend = backend
        self._check_backend(self.route(torch.float32, torch.device("cpu")))
        self._constants = tuple(float(self.options[name]) for name in self.cell.constants)
        vectors = self.cell.vectors
        self.learned_names = [f"{n}_raw" for n in vectors if self.options[n] is None]
        self.fixed_names = [n for n in vectors if self.options[n] is not None]
        # The link of each vector and the name of its raw value; a fixed vector is its own raw value.
        fixed = self.fixed_names
        self._links = tuple("identity" if n in fixed else vectors[n].link for n in vectors)
        self.raw_names = [n if n in self.fixed_names else f"{n}_raw" for n in vectors]
        own = {source: len(self.cell.gates_of(source)) for source in "xh"}
        self._read_partly = {s for s, count in own.items() if 0 < count < len(self.cell.gates)}

    def fixed_vector(self, name: str) -> Tensor:
        """The values [H] of a vector that is fixed by the options."""
        fixed, above = self.options[name], self.cell.vectors[name].above
        try:
            value = torch.as_tensor(fixed, dtype=torch.float32, device="cpu")
            fits = value.shape in ((), (self.hidden_size,)) and bool((value > above).all())
        except (TypeError, ValueError, RuntimeError):
            fits = False
        if not fits or not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"{name} = {fixed!r}; accepted: None (learned), or a number or "
                f"{self.hidden_size} numbers above {above:g}"
            )
        return value.expand(self.hidden_size).clone()

    def vector_values(self, raw: Sequence[Tensor]) -> dict[str, Tensor]:
        """The cell's per-unit values: link(raw) of learned parameters, or fixed values."""
        return dict(zip(self.cell.vectors, map(value_of, self._links, raw), strict=True))

    def rows(self, source: str, weight: Tensor) -> Tensor:
        """A weight or bias for "x" or "h" with rows for every gate, as formulas expect."""
        return all_rows(self.cell, source, weight) if source in self._read_partly else weight

    def zeros(self, batch: int, like: Tensor) -> States:
        """The initial states (zeros) for weights with the dtype and device of `like`."""
        exact = state_dtype_of(like.dtype)
        return {
            name: like.new_zeros(batch, width, dtype=exact) for name, width in self.widths.items()
        }

    def route(self, dtype: torch.dtype, device: torch.device) -> Route:
        """The implementation that runs inputs of this dtype and device, and the reason why it is not a faster
        one."""
        if self.backend == "reference":
            return Route("reference", "asked for")
        return choose(self.cell, dtype, device)

    def _check_backend(self, route: Route) -> None:
        if self.backend == "fused" and not route.fused:
            raise ValueError(
                f'backend = "fused": {route.why}; accepted here: "reference" or "auto"'
            )

    def run(
        self,
        x: Tensor,
        numbers: Numbers,
        state: Mapping[str, Tensor] | None = None,
        dt: Tensor | float | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        finite_padding: bool = False,
    ) -> tuple[Tensor, States]:
        """Returns (y [B,T,H], state) for x [B,T,I], like `Recurrent.forward`.

        finite_padding: what x holds after the end of a row is known to be finite.
        """
        weight_x = numbers.weight_x
        check_input(x, weight_x.shape[1], weight_x.dtype)
        batch, steps, width = x.shape
        if state is not None:
            check_state(state, self.cell, self.widths, batch)
        if lengths is not None:
            lengths = check_lengths(lengths, batch, steps)
        if dt is not None:
            exact = state_dtype_of(weight_x.dtype)
            dt = check_dt(dt, self.cell, self.options, batch, steps, exact, lengths=lengths)
            dt = dt.to(x.device)
        if lengths is not None:
            lengths = lengths.to(x.device, torch.int64)
            if torch.is_grad_enabled() and not finite_padding:
                # NaN in the padding would reach the gradients of the weights, although those of z are 0 there.
                x = x.masked_fill(after_end(lengths, steps)[..., None], 0.0)
        dtype = _product_dtype(x)
        route = self.route(dtype, x.device)
        self._check_backend(route)
        if not route.fused:
            return self._run_reference(x, numbers, state, dt, lengths)
        names = self.cell.states
        states = [] if state is None else [state[name] for name in names]
        weights = list(numbers[:3])
        inputs = [x, *weights, *states, *numbers.raw, *numbers.others.values()]
        traced = needs_operator(inputs, dt)
        if not traced and not (batch and steps):  # sizes may be symbols if it is traced
            return self._run_reference(x, numbers, state, dt, lengths)
        if route.name == "nru_cuda":
            run = reference_recurrence if traced else nru_cuda.recurrence
            return self._run_reference(x, numbers, state, dt, lengths, run)
        dtypes = (x.dtype, *(weight.dtype for weight in weights))
        hidden = self.hidden_size
        shape = (batch, steps, width, hidden)
        masks: tuple[Tensor | None, ...] = ()
        scales = (0.0, 0.0)
        if route.name == "layer_cuda" and not traced:  # it applies them while it copies
            of_x, of_u = numbers.dropout
            mask_x = drop_mask((batch, 1, width), of_x, x.device)
            mask_u = drop_mask((len(self.cell.gates), hidden, hidden), of_u, x.device)
            masks = mask_x, mask_u
            scales = kept_scale(of_x, x.dtype), kept_scale(of_u, torch.float32)
        else:
            inputs[0], inputs[3] = dropped(x, numbers.weight_h, numbers.dropout)
        call = LayerCall(self.cell.name, self._constants, dtype, shape, dtypes, self._links, scales)
        if traced:
            first = states or self.zeros(batch, numbers.bias).values()
            vectors = self.vector_values(numbers.raw)
            y, last = run_operator(call, dt, lengths, inputs[:4], first, vectors)
        else:
            y, last = run_function(route.name, call, dt, lengths, inputs, masks)
        return y, dict(zip(names, last, strict=True))

    def _run_reference(
        self,
        x: Tensor,
        numbers: Numbers,
        state: Mapping[str, Tensor] | None,
        dt: Tensor | None,
        lengths: Tensor | None,
        recurrence: Callable[..., tuple[Tensor, States]] = reference_recurrence,
    ) -> tuple[Tensor, States]:
        exact = state_dtype_of(numbers.weight_x.dtype)
        state = self.zeros(x.shape[0], numbers.bias) if state is None else state
        vectors = self.vector_values(numbers.raw)
        x, weight_h = dropped(x, numbers.weight_h, numbers.dropout)
        return recurrence(
            self.cell,
            nn.functional.linear(x, numbers.weight_x, numbers.bias),
            {**numbers.others, "weight_h": weight_h},
            {name: value.to(exact) for name, value in state.items()},
            {name: value.to(exact) for name, value in vectors.items()},
            self.options,
            dt,
            lengths,
        )


def _product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of W x + b under autocast."""
    cast = autocast_enabled(x.device) and x.dtype != torch.float64
    return torch.get_autocast_dtype(x.device.type) if cast else x.dtype
