"""`LSTM`, `GRU` and `PLSTM`: classes of single cells, and conversion to and from torch's layers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec

from torch import Tensor, nn

from .rnn import RNN, S

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")


def _without_cell(
    init: Callable[Concatenate[Any, str, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Returns a decorator that gives a function the arguments and the text of `init`, without `cell`."""

    def enter(own: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        signature = inspect.signature(init)
        others = [p for name, p in signature.parameters.items() if name != "cell"]
        own.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        own.__doc__ = re.sub(r"\n *cell: .*", "", init.__doc__ or "")
        return own

    return enter


of_one_cell = _without_cell(RNN.__init__)  # type: ignore[arg-type]
"""Decorator for the __init__ of a class that is an RNN of one cell."""


class TorchLayer(RNN[S]):
    """Shared by `LSTM` and `GRU`: conversion to and from torch's layer."""

    torch_layer: ClassVar[type[nn.RNNBase]]

    @classmethod
    def from_torch(cls, module: nn.RNNBase) -> Self:
        """The same layer with copies of torch's weights."""
        if not isinstance(module, cls.torch_layer):
            accepted = cls.torch_layer.__name__
            raise ValueError(f"module is a {type(module).__name__}; accepted: torch.nn.{accepted}")
        return _copied(module, cls)

    def to_torch(self) -> Any:
        """torch's layer with copies of these weights."""
        return _copied(self, self.torch_layer)


class LSTM(TorchLayer[tuple[Tensor, Tensor]]):
    """torch.nn.LSTM on tsm's kernels: the same arguments, parameters, states and results.

    output, (h_n, c_n) = LSTM(10, 20, num_layers=2)(input, (h_0, c_0))
    """

    torch_layer = nn.LSTM

    @of_one_cell
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("lstm", *args, **options)


class GRU(TorchLayer[Tensor]):
    """torch.nn.GRU on tsm's kernels: the same arguments, parameters, states and results.

    output, h_n = GRU(10, 20, num_layers=2)(input, h_0)
    """

    torch_layer = nn.GRU

    @of_one_cell
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("gru", *args, **options)


class PLSTM(RNN[tuple[Tensor, Tensor, Tensor]]):
    """The power-law LSTM (cell `plstm`) with the arguments of torch's layers.

    output, (h_n, c_n, age_n) = PLSTM(10, 20, num_layers=2)(input, (h_0, c_0, age_0), dt=dt)

    Options: p, the power of forgetting, a number or one per unit (by default learned); eps, the shortest time
    step, .001.
    """

    @of_one_cell
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("plstm", *args, **options)


def _copied(source: Any, kind: Any) -> Any:
    """A layer of that class with the arguments, weights and requires_grad flags of `source`."""
    made = kind(
        source.input_size,
        source.hidden_size,
        source.num_layers,
        source.bias,
        source.batch_first,
        source.dropout if source.num_layers > 1 else 0.0,
        source.bidirectional,
        source.proj_size,
        device="meta",  # draws no random numbers
    )
    values = {name: value.detach().clone() for name, value in source.state_dict().items()}
    made.load_state_dict(values, assign=True)
    trained = {name: parameter.requires_grad for name, parameter in source.named_parameters()}
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(trained[name])
    return made.train(source.training)
