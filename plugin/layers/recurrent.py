"""`Recurrent`: one layer that runs any registered cell over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..cells import get_cell
from ..common.checks import check_integer, check_rate
from ..init import gate_biases
from .checks import check_starts, refuse_script
from .contract import state_dtype_of
from .dropout import dropped
from .over_time import CellOverTime, Numbers
from .parameters import start_value

OF_STACKS = (
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
    "device",
    "dtype",
)
"""Arguments of torch's layers that `tsm.nn.RNN` has, but `Recurrent` does not."""


class Recurrent(CellOverTime, nn.Module):
    """A recurrent layer: x [B,T,I] -> (y [B,T,H], state), state a dict name -> [B, width].

    Parameters are weight_x [G*H, I], weight_h [G*H, H], bias [G*H] with the gates in `cell.gates` order, and
    `<vector>_raw` [H] for each learned vector of the cell. A gate that reads only x or h has rows in that
    weight only (`matrix` adds rows of zeros). weight_h is None if no gate reads h. States are float32 (float64
    in a float64 layer). The state returned by one call may be passed to the next. The result does not depend on
    how a sequence is split into chunks.
    """

    weight_h: nn.Parameter | None  # None: no gate of the cell reads h
    frozen: Tensor  # bool [G*H]: which biases are frozen; both exist only if some are
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
        input_dropout: float = 0.0,
        **options: Any,
    ) -> None:
        """Builds the layer and draws its parameters.

        cell: the name of a registered cell (`tsm.plugin.list_cells()`).
        input_size: width of x.
        hidden_size: units of the layer.
        backend: "fused" (compiled core), "reference" (autograd over the formula), "auto" (fused if possible).
        init: an initialiser of the gate biases (`tsm.plugin.init`), such as "chrono".
        init_options: arguments of the initialiser, such as {"t_max": 100}.
        weight_dropout: share of weight_h that is dropped in each call during training.
        freeze_recurrent: whether weight_h keeps its initial values.
        vector_starts: learned vector -> the part (low, high) of its usual range in which it starts.
        input_dropout: share of the inputs of a row that is dropped in each call during training, the same at
            every step.
        options: of the cell: its constants (eps=1e-5), values for vectors that are otherwise learned (p=0.7),
            or a composite cell's own.
        """
        for name in OF_STACKS:
            if name in options and name not in get_cell(cell).options():
                raise ValueError(
                    f"{name} = {options[name]!r}: Recurrent is one layer in one direction, batch first; "
                    f"tsm.nn.RNN({cell!r}, ...) has {name} and the other arguments of torch's layers"
                )
        check_integer("input_size", input_size)
        super().__init__(cell, hidden_size, backend, options)
        self.input_size = input_size
        self.finite_padding = False  # whether what x holds after the end of a row is finite, always
        rows = len(self.cell.gates) * hidden_size
        rows_x = len(self.cell.gates_of("x")) * hidden_size
        self.weight_x = nn.Parameter(torch.empty(rows_x, input_size))
        self.weights = list(self.cell.weights(hidden_size, self.options))
        for name, shape in self.cell.weights(hidden_size, self.options).items():
            setattr(self, name, nn.Parameter(torch.empty(shape)))
        if "weight_h" not in self.weights:
            self.register_parameter("weight_h", None)
        self.bias = nn.Parameter(torch.empty(rows))
        for name in self.learned_names:
            setattr(self, name, nn.Parameter(torch.empty(hidden_size)))
        for name in self.fixed_names:
            self.register_buffer(name, self.fixed_vector(name).to(self.bias.device))
        self.init, self.init_options = init, dict(init_options or {})
        self.vector_starts = check_starts(self.cell, self.options, vector_starts or {})
        self.weight_dropout = check_rate("weight_dropout", weight_dropout)
        self.input_dropout = check_rate("input_dropout", input_dropout)
        if self.weight_h is not None:
            self.weight_h.requires_grad_(not freeze_recurrent)
        elif weight_dropout or freeze_recurrent:
            raise ValueError(
                f"weight_dropout (wdrop) = {weight_dropout}, freeze_recurrent = {freeze_recurrent} with cell "
                f"{cell!r}, which has no recurrent weights; accepted: 0, False"
            )
        self.register_state_dict_pre_hook(_restore_frozen)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draws everything from U(-1/sqrt n, 1/sqrt n), n = `cell.fan_in`, then applies the initialiser."""
        sizes = self.input_size, self.hidden_size, self.options
        for name, parameter in self.named_parameters():
            part = self.vector_starts.get(name.removesuffix("_raw"))
            start_value(parameter, self.cell, name, self.cell.fan_in(name, *sizes), part)
        with torch.device("cpu"):  # so that values can be read whatever the default device is
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
        """Undoes weight decay on the frozen entries of `bias`, which have no gradient."""
        if "frozen" in self._buffers:
            self.bias.copy_(self.effective_bias())

    def effective_bias(self) -> Tensor:
        """The bias in use: frozen entries keep their initial values, whatever an optimizer does."""
        if "frozen" not in self._buffers:
            return self.bias
        return torch.where(self.frozen, self.frozen_bias, self.bias)

    def matrix(self, name: str) -> Tensor:
        """weight_x, weight_h or one of `weights` with rows for every gate, as formulas expect."""
        weight = self._u() if name == "weight_h" else getattr(self, name)
        source = {"weight_x": "x", "weight_h": "h"}.get(name)
        return weight if source is None else self.rows(source, weight)

    def _u(self) -> Tensor:
        """weight_h, or an empty [0, H] if there is none."""
        weight = self.weight_h
        return self.bias.new_empty(0, self.hidden_size) if weight is None else weight

    def vectors(self) -> dict[str, Tensor]:
        """The cell's per-unit values: link(raw) of learned parameters, or fixed values."""
        return self.vector_values(self._raw_vectors())

    def _raw_vectors(self) -> list[Tensor]:
        return [getattr(self, name) for name in self.raw_names]

    def zero_state(self, batch: int) -> dict[str, Tensor]:
        """The initial states of a batch."""
        return self.zeros(batch, self.bias)

    @property
    def state_dtype(self) -> torch.dtype:
        return state_dtype_of(self.weight_x.dtype)

    def forward(
        self,
        x: Tensor,
        state: Mapping[str, Tensor] | None = None,
        dt: Tensor | float | None = None,
        lengths: Tensor | Sequence[int] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns (y [B,T,H], state after the chunk). On a GPU y may be a strided view.

        x: [B,T,I] in the layer's dtype.
        state: name -> [B, width] before the chunk; None: zeros.
        dt: time since the previous step, for cells that take it: a number, or broadcasting to [B,T].
        lengths: valid steps of each row [B]. After them y is 0 and the state of the row does not change.
        """
        if self.training and "frozen" in self._buffers and not torch.compiler.is_compiling():
            self.restore_frozen()
        weight_h = self._u()
        rates = (self.input_dropout, self.weight_dropout) if self.training else (0.0, 0.0)
        if "h" in self._read_partly:  # add rows after dropout
            x, weight_h = dropped(x, weight_h, rates)
            weight_h, rates = self.rows("h", weight_h), (0.0, 0.0)
        others = {name: getattr(self, name) for name in self.weights if name != "weight_h"}
        raw = self._raw_vectors()
        weight_x, bias = self.matrix("weight_x"), self.effective_bias()
        numbers = Numbers(weight_x, bias, weight_h, raw, others, rates)
        return self.run(x, numbers, state, dt, lengths, self.finite_padding)

    if TYPE_CHECKING:
        __call__ = forward

    __prepare_scriptable__ = refuse_script

    def extra_repr(self) -> str:
        """The arguments in repr()."""
        given = "".join(f", {k}={v!r}" for k, v in self.options.items() if v is not None)
        return f"{self.cell.name}, {self.input_size}, {self.hidden_size}, backend={self.backend!r}{given}"


def _restore_frozen(layer: Recurrent, prefix: str, keep_vars: bool) -> None:
    """Hook that restores the frozen biases before saving. A lambda could not be pickled."""
    layer.restore_frozen()
