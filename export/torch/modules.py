"""A whole model as modules that torch.jit.script and torch.export can read, without operators of tsm.

    forward(x, lengths=None, state=None, dt=None) -> (logits, state)

is called like a `SequenceModel`, with the same state: a list of one dict per layer. Weights have the requested
dtype; states and arithmetic between products are float32 (float64 in a float64 model), as in the reference.
Steps past `lengths` are skipped; a classifier that was trained to read through the padding (read_at = end) is
fed the padding.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .step import step_module

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent
    from ...plugin.models import SequenceModel


class Layer(nn.Module):
    """A recurrent layer: x [N,T,I] -> (y [N,T,H], state), with a loop over T that TorchScript compiles."""

    weight_x: Tensor
    bias: Tensor

    def __init__(self, layer: "Recurrent", rounded: torch.dtype, exact: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight_x", layer.matrix("weight_x").detach().to(rounded))
        self.register_buffer("bias", layer.effective_bias().detach().to(rounded))
        self.step = step_module(layer, rounded, exact)
        self.names = list(layer.cell.states)
        self.sizes = [layer.widths[name] for name in layer.cell.states]
        self.rounded, self.exact = rounded, exact

    def zero_state(self, batch: int) -> dict[str, Tensor]:
        """What every stream starts from."""
        state: dict[str, Tensor] = {}
        for name, width in zip(self.names, self.sizes):  # noqa: B905 (not in TorchScript)
            state[name] = torch.zeros(batch, width, dtype=self.exact, device=self.bias.device)
        return state

    def check_state(self, state: dict[str, Tensor], layer: int, batch: int) -> None:
        for name, width in zip(self.names, self.sizes):  # noqa: B905
            if name not in state:
                raise ValueError(f"state of layer {layer} has no {name}; accepted: {self.names}")
            if list(state[name].shape) != [batch, width]:
                raise ValueError(
                    f"state {name} of layer {layer} has shape {state[name].shape}; "
                    f"accepted: [{batch}, {width}]"
                )

    def project(self, x: Tensor) -> Tensor:
        """zx = W x + b of the whole chunk."""
        return nn.functional.linear(x, self.weight_x, self.bias).to(self.exact)

    def in_order(self, state: dict[str, Tensor]) -> list[Tensor]:
        return [state[name].to(self.exact) for name in self.names]

    def named(self, states: list[Tensor]) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for name, value in zip(self.names, states):  # noqa: B905
            named[name] = value
        return named

    def advance(
        self,
        zx: Tensor,
        states: list[Tensor],
        weights: list[Tensor],
        dt: Tensor,
    ) -> list[Tensor]:
        """One step; h is rounded to the weights' type before the product with U."""
        fed = states[0].to(self.rounded).to(self.exact)
        new: list[Tensor] = self.step(zx, fed, states, weights, dt)
        return new


class LoopLayer(Layer):
    """Any T."""

    def forward(
        self, x: Tensor, state: dict[str, Tensor], dt: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        zx = self.project(x)
        weights = self.step.weights()  # type: ignore[operator]
        states = self.in_order(state)
        outputs: list[Tensor] = []
        for t in range(zx.shape[1]):
            new = self.advance(zx[:, t], states, weights, dt[:, t].unsqueeze(1))
            h = new[0]
            if lengths is not None:
                h, new = hold(new, states, lengths > t)
            outputs.append(h)
            states = new
        if len(outputs) == 0:
            y = torch.zeros(zx.shape[0], 0, self.sizes[0], dtype=zx.dtype, device=zx.device)
        else:
            y = torch.stack(outputs, 1)
        return y.to(self.rounded), self.named(states)


class UnrolledLayer(Layer):
    """Unrolls T = chunk_size steps: a loop over a tuple is unrolled when it is compiled."""

    def __init__(
        self, layer: "Recurrent", rounded: torch.dtype, exact: torch.dtype, chunk_size: int
    ) -> None:
        super().__init__(layer, rounded, exact)
        self.times = tuple(range(chunk_size))

    def forward(
        self, x: Tensor, state: dict[str, Tensor], dt: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        zx = self.project(x)
        weights = self.step.weights()  # type: ignore[operator]
        states = self.in_order(state)
        outputs: list[Tensor] = []
        for t in self.times:
            new = self.advance(zx[:, t], states, weights, dt[:, t].unsqueeze(1))
            h = new[0]
            if lengths is not None:
                h, new = hold(new, states, lengths > t)
            outputs.append(h)
            states = new
        return torch.stack(outputs, 1).to(self.rounded), self.named(states)


def hold(new: list[Tensor], old: list[Tensor], live: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Returns (h, states) after a step that updates only the rows `live` [N]; h is 0 in the others."""
    mask = live.unsqueeze(1)
    kept = [torch.where(mask, a, b) for a, b in zip(new, old)]  # noqa: B905
    return torch.where(mask, new[0], torch.zeros_like(new[0])), kept


class Embedding(nn.Module):
    """tokens [N,T] -> rows of the table [N,T,E]"""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", table)

    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.embedding(x, self.weight)


class OneHot(nn.Module):
    """tokens [N,T] -> [N,T,V]"""

    def __init__(self, vocab_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.vocab_size, self.dtype = vocab_size, dtype

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.one_hot(x.long(), self.vocab_size).to(self.dtype)


class Values(nn.Module):
    """values [N,T,I], in the weights' type"""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype)


class Head(nn.Module):
    """logits = W h + b, in the states' type"""

    def __init__(self, weight: Tensor, bias: Tensor, exact: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)
        self.exact = exact

    weight: Tensor
    bias: Tensor

    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.linear(h.to(self.weight.dtype), self.weight, self.bias).to(self.exact)


class Streaming(nn.Module):
    """See the module. `chunk_size` is the only T that an unrolled model takes; 0 if any T is fine."""

    def __init__(
        self,
        embedding: nn.Module,
        layers: list[Layer],
        output: Head,
        model: "SequenceModel",
        chunk_size: int,
    ) -> None:
        super().__init__()
        first = model.layers[0]
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)
        self.output = output
        self.exact = layers[0].exact
        self.input_size: int = first.input_size if model.embed is None else 0  # 0: tokens
        self.chunk_size = chunk_size
        self.takes_dt: bool = first.cell.takes_dt
        self.shortest_dt: float = first.cell.shortest_dt(first.options)
        self.per_sequence: bool = model.name == "classifier"
        self.cell: str = first.cell.name

    def forward(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        state: list[dict[str, Tensor]] | None = None,
        dt: Tensor | None = None,
    ) -> tuple[Tensor, list[dict[str, Tensor]]]:
        if torch.jit.is_scripting():  # type: ignore[attr-defined]
            self.check(x, lengths, state, dt)
        if dt is None:
            steps = torch.ones(x.shape[0], x.shape[1], dtype=self.exact, device=x.device)
        else:
            steps = dt.to(self.exact)
        y = self.embedding(x)
        new: list[dict[str, Tensor]] = []
        for i, layer in enumerate(self.layers):
            start = layer.zero_state(x.shape[0])  # type: ignore[operator]
            y, last = layer(y, start if state is None else state[i], steps, lengths)
            new.append(last)
        return self.output(new[-1]["h"] if self.per_sequence else y), new

    def check(
        self,
        x: Tensor,
        lengths: Tensor | None,
        state: list[dict[str, Tensor]] | None,
        dt: Tensor | None,
    ) -> None:
        """Checks the caller's inputs before anything is computed. Does not synchronise with a GPU."""
        if self.input_size == 0:
            if x.dim() != 2 or x.is_floating_point():
                raise ValueError(f"x has shape {x.shape}; accepted: tokens, int64 [N, T]")
        elif x.dim() != 3 or x.shape[2] != self.input_size or not x.is_floating_point():
            raise ValueError(
                f"x has shape {x.shape}; accepted: a float tensor [N, T, {self.input_size}]"
            )
        if self.chunk_size > 0 and x.shape[1] != self.chunk_size:
            raise ValueError(
                f"x has T = {x.shape[1]}; accepted by this unrolled model: {self.chunk_size} "
                "(fill up a shorter chunk and give lengths)"
            )
        if lengths is not None:
            if lengths.dim() != 1 or lengths.shape[0] != x.shape[0] or lengths.is_floating_point():
                raise ValueError(
                    f"lengths has shape {lengths.shape}; accepted: int64 [{x.shape[0]}]"
                )
            wrong = (lengths < 0) | (lengths > x.shape[1])
            if not lengths.is_cuda and bool(wrong.any()):
                raise ValueError(
                    f"lengths has {int(lengths[wrong][0])}; accepted: 0 to T = {x.shape[1]}"
                )
        if dt is not None:
            if not self.takes_dt:
                raise ValueError(f"dt was given, but cell {self.cell} takes none")
            if dt.shape != x.shape[:2] or not dt.is_floating_point():
                raise ValueError(f"dt has shape {dt.shape}; accepted: a float tensor {x.shape[:2]}")
            least = self.shortest_dt * (1.0 - 1e-6)
            fine = (dt > 0) & (dt >= least) & (dt <= 1e30)
            if lengths is not None:  # padding may hold anything
                fine = fine | (torch.arange(dt.shape[1], device=dt.device) >= lengths[:, None])
            if not dt.is_cuda and not bool(fine.all()):
                raise ValueError(
                    f"dt has {float(dt[torch.logical_not(fine)][0])}; accepted: finite numbers above 0, "
                    f"from {self.shortest_dt} to 1e30"
                )
        if state is not None:
            if len(state) != len(self.layers):
                raise ValueError(
                    f"state has {len(state)} layers; accepted: None or {len(self.layers)} dicts"
                )
            for i, layer in enumerate(self.layers):
                layer.check_state(state[i], i, x.shape[0])  # type: ignore[operator]


DTYPES: dict[str, tuple[torch.dtype, torch.dtype]] = {
    "float32": (torch.float32, torch.float32),
    "float64": (torch.float64, torch.float64),
    "bfloat16": (torch.bfloat16, torch.float32),
    "float16": (torch.float16, torch.float32),
}
"""Name -> (dtype of the weights, dtype of the states)."""

MakeLayer = Callable[["Recurrent", torch.dtype, torch.dtype], Layer]


def streaming(
    model: "SequenceModel", dtype: str, make_layer: MakeLayer, chunk_size: int | None = None
) -> Streaming:
    """The model with its current weights, on the CPU; a shared table stays shared."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype = {dtype!r}; accepted: {', '.join(DTYPES)}")
    rounded, exact = DTYPES[dtype]
    moved: dict[int, Tensor] = {}

    def value(tensor: Tensor) -> Tensor:
        if id(tensor) not in moved:
            moved[id(tensor)] = tensor.detach().to("cpu", rounded)
        return moved[id(tensor)]

    embed = model.embed
    if embed is None:
        embedding: nn.Module = Values(rounded)
    elif embed.one_hot:
        embedding = OneHot(embed.vocab_size, rounded)
    else:
        embedding = Embedding(value(embed.weight))
    layers = [make_layer(layer, rounded, exact) for layer in model.layers]
    output = Head(value(model.decoder.weight), value(model.decoder.bias), exact)
    whole = Streaming(embedding, layers, output, model, chunk_size or 0)
    return whole.to("cpu").eval()
