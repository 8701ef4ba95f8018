"""`RNN`: any registered cell in a stack, in one or both directions, with the interface of torch's recurrent
layers."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Generic, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..cells import get_cell
from ..common.checks import check_integer
from ..init import gate_biases
from ..layers.checks import check_dt, refuse_script
from ..layers.over_time import CellOverTime, Numbers
from ..layers.parameters import start_value
from ..registry import unknown
from .projection import check_projection, run_projected
from .sequences import Batch, Reversal, open_batch
from .states import give_states, read_states

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")
"""What a layer takes and returns as its states."""
Layout = TypeVar("Layout", Tensor, PackedSequence)


class RNN(nn.Module, Generic[S]):
    """Stacked recurrent layers with torch's arguments, shapes, parameter names and states.

    output, (h_n, c_n) = RNN("lstm", 10, 20, num_layers=2)(input, (h_0, c_0))

    Parameters of layer k: weight_ih_lk, weight_hh_lk, bias_ih_lk, bias_hh_lk, weight_hr_lk if proj_size is
    given, and those specific to the cell, such as p_raw_lk. For the backward direction, _reverse is appended. A
    cell whose gates do not read h has neither weight_hh_lk nor bias_hh_lk.
    """

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        backend: str = "auto",
        init: str = "default",
        init_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        """Builds the layers and draws their parameters.

        cell: the name of a registered cell (`tsm.plugin.list_cells()`).
        input_size: width of the input.
        hidden_size: units of each layer in each direction.
        num_layers: number of stacked layers.
        bias: whether there are bias_ih and bias_hh.
        batch_first: whether input and output are [B, T, width] and not [T, B, width]; states are the same.
        dropout: share of the outputs of all layers but the last that is dropped in training.
        bidirectional: whether other layers also read each row backwards; both outputs are concatenated.
        proj_size: width to which h is projected, below hidden_size; 0: it is not projected.
        device: of the parameters.
        dtype: of the parameters; float32, or torch's default.
        backend: "fused" (compiled core), "reference" (autograd over the formula), "auto" (fused if possible).
        init: an initialiser of the gate biases that freezes none, such as "chrono".
        init_options: arguments of the initialiser, such as {"t_max": 100}.
        options: of the cell: its constants (eps=1e-5), values for vectors that are otherwise learned (p=0.7).
        """
        super().__init__()
        check_integer("input_size", input_size)
        check_integer("num_layers", num_layers)
        _check_names(cell, options)
        _check_dropout(dropout, num_layers)
        self.over_time = CellOverTime(cell, hidden_size, backend, options)
        self.cell = self.over_time.cell
        check_projection(self.cell, hidden_size, proj_size)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.init, self.init_options = init, dict(init_options or {})
        self.suffixes = [
            f"_l{layer}{way}"
            for layer in range(num_layers)
            for way in (("", "_reverse") if bidirectional else ("",))
        ]
        self._others = [
            n for n in self.cell.weights(hidden_size, self.over_time.options) if n != "weight_h"
        ]
        for number, suffix in enumerate(self.suffixes):
            width = self.output_size if number >= self.directions else input_size
            for name, shape in self._shapes(width).items():
                empty = torch.empty(shape, device=device, dtype=dtype)
                self.register_parameter(name + suffix, nn.Parameter(empty))
            for name in self.over_time.fixed_names:
                self.register_buffer(name + suffix, self.over_time.fixed_vector(name).to(empty))
        self.reset_parameters()

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """The width of the output: directions x (proj_size or hidden_size)."""
        return self.directions * (self.proj_size or self.hidden_size)

    def _shapes(self, width: int) -> dict[str, tuple[int, ...]]:
        """Parameters of one layer in one direction: torch's parameters in torch's order, then those that only
        tsm has."""
        hidden, over_time = self.hidden_size, self.over_time
        of_x, of_h = (len(self.cell.gates_of(source)) * hidden for source in "xh")
        found: dict[str, tuple[int, ...]] = {"weight_ih": (of_x, width)}
        found |= {"weight_hh": (of_h, self.proj_size or hidden)} if of_h else {}
        if self.bias:
            found |= {"bias_ih": (of_x,)} | ({"bias_hh": (of_h,)} if of_h else {})
        if self.proj_size:
            found["weight_hr"] = (self.proj_size, hidden)
        shapes = self.cell.weights(hidden, over_time.options)
        found |= {name: shapes[name] for name in self._others}
        return found | {name: (hidden,) for name in over_time.learned_names}

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws from U(-1/sqrt n, 1/sqrt n), n = `cell.fan_in`, in torch's order, then sets the values that the
        cell and the initialiser prescribe."""
        for name, parameter in self.named_parameters():
            plain, suffix = name[: name.rindex("_l")], name[name.rindex("_l") :]
            width = getattr(self, f"weight_ih{suffix}").shape[1]
            fan_in = self.cell.fan_in(plain, width, self.hidden_size, self.over_time.options)
            start_value(parameter, self.cell, plain, fan_in)
        for suffix in self.suffixes:
            with torch.device("cpu"):
                biases, frozen = gate_biases(
                    self.cell, self.hidden_size, self.init, self.init_options
                )
            if frozen or (biases and not self.bias):
                why = "freezes biases" if frozen else "sets biases"
                raise ValueError(
                    f"init = {self.init!r} {why}; accepted with bias={self.bias}: one that does not, "
                    "or tsm.plugin.layers.Recurrent"
                )
            for gate, value in biases.items():
                first, *others = self._bias_rows(gate, suffix)
                first.copy_(value)
                for rows in others:
                    rows.zero_()

    def _bias_rows(self, gate: str, suffix: str) -> Iterator[Tensor]:
        """Views of a gate's biases: those of W x, of U h, or both."""
        for source, name in (("x", "bias_ih"), ("h", "bias_hh")):
            own = self.cell.gates_of(source)
            if gate in own:
                yield getattr(self, name + suffix).chunk(len(own))[own.index(gate)]

    def forward(
        self,
        input: Layout,
        hx: S | None = None,
        dt: Tensor | PackedSequence | float | None = None,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Layout, S]:
        """Returns (output, states after the last step).

        input: [T, B, I], [B, T, I] with batch_first, [T, I] without a batch, or a PackedSequence; the output
        has the same layout, and the width D * (proj_size or hidden_size), D = 2 with bidirectional.
        hx: the states before the first step; None: zeros. A tensor [D * num_layers, B, width] for each of
        `cell.states` (h, c, ...), in a tuple if there are several; those that are returned are alike.
        dt: time since the previous step, for cells that take it: a number, [T], or laid out like the input.
        lengths: valid steps of each row [B], instead of packing; after them the output is 0.
        """
        batch = open_batch(input, self.batch_first, self.input_size, lengths)
        count = len(self.suffixes)
        before = None if hx is None else read_states(hx, self._widths(), count, batch)
        y, turned = batch.x, Reversal(batch)
        times = self._times(dt, batch, turned)
        last: list[dict[str, Tensor]] = []
        for layer in range(self.num_layers):
            ways = []
            for way in range(self.directions):
                number = layer * self.directions + way
                state = None if before is None else {n: v[number] for n, v in before.items()}
                x = turned(y) if way else y
                finite = layer > 0 or isinstance(input, PackedSequence)
                out, new = self._direction(number, x, state, times[way], batch.lengths, finite)
                ways.append(turned(out) if way else out)
                last.append(new)
            y = torch.cat(ways, 2) if self.bidirectional else ways[0]
            if self.dropout and layer + 1 < self.num_layers:
                y = nn.functional.dropout(y, self.dropout, self.training)
        states = give_states(last, self.cell.states, batch, y.dtype)
        return cast("tuple[Layout, S]", (batch.restore(y), states))

    if TYPE_CHECKING:
        __call__ = forward

    __prepare_scriptable__ = refuse_script

    def _direction(
        self,
        number: int,
        x: Tensor,
        state: Mapping[str, Tensor] | None,
        dt: Tensor | None,
        lengths: Tensor | None,
        finite_padding: bool,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        suffix = self.suffixes[number]

        def own(name: str) -> Tensor:
            return getattr(self, name + suffix)

        def rows(source: str, name: str) -> Tensor:
            return self.over_time.rows(source, own(name))

        weight_x = rows("x", "weight_ih")
        bias = rows("x", "bias_ih") if self.bias else weight_x.new_zeros(len(weight_x))
        if self.cell.gates_of("h"):
            weight_h = rows("h", "weight_hh")
            bias = bias + rows("h", "bias_hh") if self.bias else bias
        else:
            weight_h = weight_x.new_empty(0, self.proj_size or self.hidden_size)
        raw = [own(name) for name in self.over_time.raw_names]
        others = {name: own(name) for name in self._others}
        numbers = Numbers(weight_x, bias, weight_h, raw, others)
        given = x, numbers, state, dt, lengths, finite_padding
        if self.proj_size:
            return run_projected(self.over_time, own("weight_hr"), *given)
        return self.over_time.run(*given)

    def _times(
        self, dt: Any, batch: Batch, turned: Reversal
    ) -> tuple[Tensor | None, Tensor | None]:
        """dt [B,T] of each direction."""
        if dt is None:
            return None, None
        rows, steps = batch.x.shape[:2]
        exact = torch.float64 if batch.x.dtype == torch.float64 else torch.float32
        options = self.over_time.options
        given = batch.time_steps(dt)
        major, lengths = batch.time_major, batch.lengths
        dt = check_dt(given, self.cell, options, rows, steps, exact, major, lengths)
        dt = dt.to(batch.x.device)
        return dt, turned.time_steps(dt) if self.bidirectional else None

    def _widths(self) -> dict[str, int]:
        """The width of each state, in the cell's order."""
        widths = {**self.over_time.widths, "h": self.proj_size or self.hidden_size}
        return {name: widths[name] for name in self.cell.states}

    def flatten_parameters(self) -> None:
        """Does nothing. It exists because code written for torch's layers calls it."""

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """As in torch: the parameters of each layer and direction."""
        return [
            [p for n, p in self.named_parameters() if n[n.rindex("_l") :] == suffix]
            for suffix in self.suffixes
        ]

    def extra_repr(self) -> str:
        """The arguments in repr(), as torch's layers show them."""
        given = {
            "num_layers": (self.num_layers, 1),
            "bias": (self.bias, True),
            "batch_first": (self.batch_first, False),
            "dropout": (self.dropout, 0.0),
            "bidirectional": (self.bidirectional, False),
            "proj_size": (self.proj_size, 0),
        }
        shown = [f"{name}={value!r}" for name, (value, usual) in given.items() if value != usual]
        shown += [f"{k}={v!r}" for k, v in self.over_time.options.items() if v is not None]
        name = [repr(self.cell.name)] if type(self) is RNN else []
        return ", ".join([*name, str(self.input_size), str(self.hidden_size), *shown])


ARGUMENTS = [
    name
    for name, argument in inspect.signature(RNN).parameters.items()
    if argument.kind is not inspect.Parameter.VAR_KEYWORD
]


def _check_names(cell: str, options: Mapping[str, Any]) -> None:
    """ValueError for a misspelt argument, such as batchfirst. Other names are options of the cell."""
    for name in options:
        if name not in get_cell(cell).options() and get_close_matches(name, ARGUMENTS):
            raise unknown("argument", name, ARGUMENTS)


def _check_dropout(dropout: float, num_layers: int) -> None:
    number = isinstance(dropout, (int, float)) and not isinstance(dropout, bool)
    if not number or not 0 <= dropout <= 1:
        raise ValueError(f"dropout = {dropout!r}; accepted: a number from 0 to 1")
    if dropout and num_layers == 1:
        warnings.warn(
            f"dropout = {dropout!r} with num_layers = 1 does nothing: it acts between layers",
            stacklevel=3,
        )
