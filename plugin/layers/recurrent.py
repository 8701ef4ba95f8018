"""`Recurrent`: one layer that runs any registered cell over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..cells import Cell, get_cell
from ..common.checks import check_integer, check_rate
from ..init import gate_biases
from . import BACKENDS
from .checks import check_dt, check_input, check_lengths, check_starts, check_state
from .choose import Route, choose
from .contract import LayerCall
from .operator import needs_operator, run_function, run_operator
from .parameters import draw_raw, value_of, weight_drop
from .reference import reference_recurrence
from .torch_private import autocast_enabled


class Recurrent(nn.Module):
    """A recurrent layer: x [B,T,I] -> (y [B,T,H], state), state a dict name -> [B, width].

    Parameters are weight_x [G*H, I], weight_h [G*H, H], bias [G*H] with the gates in `cell.gates` order, and
    `<vector>_raw` [H] for each learned vector of the cell. States are float32 (float64 in a float64 layer).
    A state taken from one call may be given to the next: any split into chunks gives the same result.

    cell: a registered name. options: constants and vectors of the cell (`eps=1e-5`, `p=0.7` fixes p), or a
    composite cell's own. init, init_options: an initialiser of `tsm.plugin.init` and its arguments.
    backend: "fused" (compiled core), "reference" (autograd over the program), or "auto" (fused where it can).
    weight_dropout: share of weight_h left out, anew in each call, while training.
    freeze_recurrent: weight_h keeps its first values.
    vector_starts: learned vector -> the part (low, high) of its usual range that it starts from.
    """

    weight_h: nn.Parameter  # every cell has one
    frozen: Tensor  # bool [G*H], where an initialiser froze the bias; both only then
    frozen_bias: Tensor

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        backend: str = "auto",
        init: str = "default",
        init_options: Mapping[str, Any] | None = None,
        weight_dropout: float = 0.0,
        freeze_recurrent: bool = False,
        vector_starts: Mapping[str, tuple[float, float]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        if backend not in BACKENDS:
            raise ValueError(f"backend = {backend!r}; accepted: {', '.join(BACKENDS)}")
        self.cell: type[Cell] = get_cell(cell)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.options = self.cell.check(hidden_size, options)
        self.widths = self.cell.widths(hidden_size, self.options)
        self.backend = backend
        self._check_backend(self.route(torch.float32, torch.device("cpu")))

        rows = len(self.cell.gates) * hidden_size
        self.weight_x = nn.Parameter(torch.empty(rows, input_size))
        self.weights = list(self.cell.weights(hidden_size, self.options))
        self._constants = [float(self.options[name]) for name in self.cell.constants]
        for name, shape in self.cell.weights(hidden_size, self.options).items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        self.bias = nn.Parameter(torch.empty(rows))
        self._links: list[str] = []  # of the vectors; what is fixed is its own raw value
        self._raw: list[str] = []  # names of their raw values
        for name in self.cell.vectors:
            self._add_vector(name, self.options[name])
        self.init, self.init_options = init, dict(init_options or {})
        self.vector_starts = check_starts(self.cell, self.options, vector_starts or {})
        self.weight_dropout = check_rate("weight_dropout", weight_dropout)
        self.weight_h.requires_grad_(not freeze_recurrent)
        self.register_state_dict_pre_hook(_restore_frozen)
        self.reset_parameters()

    def _add_vector(self, name: str, fixed: Any) -> None:
        self._links.append(self.cell.vectors[name].link if fixed is None else "identity")
        self._raw.append(f"{name}_raw" if fixed is None else name)
        if fixed is None:
            setattr(self, f"{name}_raw", nn.Parameter(torch.empty(self.hidden_size)))
            return
        above = self.cell.vectors[name].above
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
        self.register_buffer(name, value.expand(self.hidden_size).clone().to(self.bias.device))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """U(-1/sqrt H, 1/sqrt H) for everything, then what the initialiser sets."""
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters():
            start = self.cell.starts.get(name)
            vector = self.cell.vectors.get(name.removesuffix("_raw"))
            if start is not None:
                parameter.fill_(start)
            elif vector is not None:
                part = self.vector_starts.get(name.removesuffix("_raw"))
                parameter.copy_(draw_raw(vector, self.hidden_size, part))
            else:
                parameter.uniform_(-bound, bound)
        with torch.device("cpu"):  # whose values can be looked at, wherever the layer is made
            biases, frozen = gate_biases(self.cell, self.hidden_size, self.init, self.init_options)
        for gate, bias in biases.items():
            self.bias[self._rows(gate)] = bias.to(self.bias)
        if frozen:
            mask = torch.zeros_like(self.bias, dtype=torch.bool)
            for gate in frozen:
                mask[self._rows(gate)] = True
            self.register_buffer("frozen", mask)
            self.register_buffer("frozen_bias", self.bias.detach().clone())

    def _rows(self, gate: str) -> slice:
        start = self.cell.gates.index(gate) * self.hidden_size
        return slice(start, start + self.hidden_size)

    @torch.no_grad()
    def restore_frozen(self) -> None:
        """Undo what weight decay did to the frozen entries of `bias`; they have no gradient."""
        if "frozen" in self._buffers:
            self.bias.copy_(self.effective_bias())

    def effective_bias(self) -> Tensor:
        """The bias that is used: frozen entries keep their first bits whatever an optimizer does."""
        if "frozen" not in self._buffers:
            return self.bias
        return torch.where(self.frozen, self.frozen_bias, self.bias)

    def vectors(self) -> dict[str, Tensor]:
        """The cell's per-unit values: links of the learned parameters, or the fixed ones."""
        values = map(value_of, self._links, self._raw_vectors())
        return dict(zip(self.cell.vectors, values, strict=True))

    def _raw_vectors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._raw]

    def zero_state(self, batch: int) -> dict[str, Tensor]:
        """What every stream starts from."""
        exact = self.state_dtype
        return {
            name: self.bias.new_zeros(batch, width, dtype=exact)
            for name, width in self.widths.items()
        }

    @property
    def state_dtype(self) -> torch.dtype:
        return torch.float64 if self.weight_x.dtype == torch.float64 else torch.float32

    def route(self, dtype: torch.dtype, device: torch.device) -> Route:
        """Which implementation runs inputs of that kind, and why not a faster one."""
        if self.backend == "reference":
            return Route("reference", "asked for")
        return choose(self.cell, dtype, device)

    def _check_backend(self, route: Route) -> None:
        if self.backend == "fused" and not route.fused:
            raise ValueError(
                f'backend = "fused": {route.why}; accepted here: "reference" or "auto"'
            )

    def forward(
        self,
        x: Tensor,
        state: Mapping[str, Tensor] | None = None,
        dt: Tensor | None = None,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(y, state) after the chunk. Past a row's length y is 0 and its state stays as it was there.

        On a GPU y may be a strided view.
        """
        weight_x = self.weight_x  # read once: a module looks long for its parameters
        check_input(x, self.input_size, weight_x.dtype)
        batch, steps, _ = x.shape
        if state is not None:
            check_state(state, self.cell, self.widths, batch)
        if lengths is not None:
            lengths = check_lengths(lengths, batch, steps).to(x.device, torch.int64)
        if dt is not None:
            dt = check_dt(dt, self.cell, self.options, batch, steps, self.state_dtype).to(x.device)
        if self.training and "frozen" in self._buffers and not torch.compiler.is_compiling():
            self.restore_frozen()
        dtype = self._product_dtype(x)
        route = self.route(dtype, x.device)  # of any shape; with the shape below
        self._check_backend(route)
        weight_h = weight_drop(self.weight_h, self.weight_dropout, self.training)
        weights = [weight_x, self.effective_bias(), weight_h]
        if not route.fused:
            return self._run_reference(x, weights, state, dt, lengths)
        names = self.cell.states
        states = [] if state is None else [state[name] for name in names]
        inputs = [x, *weights, *states, *self._raw_vectors()]
        traced = needs_operator(inputs, dt)
        if not traced:  # the operator chooses for itself, out of a compiler's sight
            route = choose(self.cell, dtype, x.device, (batch, steps, self.hidden_size))
            if not route.fused:  # x has no elements
                return self._run_reference(x, weights, state, dt, lengths)
        dtypes = (x.dtype, weight_x.dtype, weights[1].dtype, weight_h.dtype)
        shape = (batch, steps, self.input_size, self.hidden_size)
        call = LayerCall(self.cell.name, self._constants, dtype, shape, dtypes)
        if traced:
            zeros = self.zero_state(batch).values()
            y, last = run_operator(call, dt, lengths, inputs[:4], states or zeros, self.vectors())
        else:
            y, last = run_function(route.name, call, self._links, dt, lengths, inputs)
        return y, dict(zip(names, last, strict=True))

    def _run_reference(
        self,
        x: Tensor,
        weights: Sequence[Tensor],
        state: Mapping[str, Tensor] | None,
        dt: Tensor | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        weight_x, bias, weight_h = weights
        state = self.zero_state(len(x)) if state is None else state
        return reference_recurrence(
            self.cell,
            nn.functional.linear(x, weight_x, bias),
            {**{name: getattr(self, name) for name in self.weights}, "weight_h": weight_h},
            {name: value.to(self.state_dtype) for name, value in state.items()},
            {name: value.to(self.state_dtype) for name, value in self.vectors().items()},
            self.options,
            dt,
            lengths,
        )

    def _product_dtype(self, x: Tensor) -> torch.dtype:
        """Of W x + b: what autocast makes of it."""
        cast = autocast_enabled(x.device) and x.dtype != torch.float64
        return torch.get_autocast_dtype(x.device.type) if cast else x.dtype

    def extra_repr(self) -> str:
        given = "".join(f", {k}={v!r}" for k, v in self.options.items() if v is not None)
        return f"{self.cell.name}, {self.input_size}, {self.hidden_size}, backend={self.backend!r}{given}"


def _restore_frozen(layer: Recurrent, prefix: str, keep_vars: bool) -> None:
    """Hook: what is saved has the frozen biases. A function with a name, as a lambda has no pickle."""
    layer.restore_frozen()
