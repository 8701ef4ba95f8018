"""One step of `nru` for step.py: the formula of plugin/cells/nru.py in scriptable torch."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...plugin.cells.nru import NORM
from ...plugin.cells.tape.rows import unit_norm_tape
from ...plugin.cells.tape.tape import Literal, Ref
from .source import compiled, node_lines

if TYPE_CHECKING:
    from ...plugin.layers import Recurrent


def unit_norm_source() -> str:
    """`unit_norm` of plugin/cells/tape/rows.py as a function of torch operations."""
    tape = unit_norm_tape(*NORM)

    def written(ref: Ref) -> str:
        if isinstance(ref, Literal):
            return repr(ref.value)
        return f"v{ref}" if isinstance(ref, int) else ref

    lines = [*node_lines(tape, written, "nru"), f"return {written(tape.outputs['y'])}"]
    return "def unit_norm(x: Tensor) -> Tensor:\n" + "".join(f"    {line}\n" for line in lines)


unit_norm: Callable[[Tensor], Tensor] = compiled("unit_norm", unit_norm_source())["unit_norm"]


class NruStep(nn.Module):
    """h = relu(norm(z));  m = m' + mean over the heads of (alpha write - beta erase)."""

    weight_h: Tensor
    weight_m: Tensor
    weight_alpha: Tensor
    weight_beta: Tensor
    weight_write: Tensor
    weight_erase: Tensor
    bias_alpha: Tensor
    bias_beta: Tensor
    bias_write: Tensor
    bias_erase: Tensor
    norm_scale: Tensor
    norm_shift: Tensor

    def __init__(self, layer: "Recurrent", rounded: torch.dtype, exact: torch.dtype) -> None:
        super().__init__()
        self.exact = exact
        self.heads: int = layer.options["heads"]
        self.memory: int = layer.options["memory_size"]
        self.normed: bool = layer.options["layer_norm"]
        for name in layer.weights:
            self.register_buffer(name, getattr(layer, name).detach().to(rounded))
        if not self.normed:  # a scripted branch needs its buffers even if it is not taken
            for name in ("norm_scale", "norm_shift"):
                self.register_buffer(name, torch.empty(0, dtype=rounded))

    def weights(self) -> list[Tensor]:
        """U and V, then alpha, beta, write and erase with their biases, then the norm's two rows."""
        exact = self.exact
        return [
            self.weight_h.to(exact).t(),
            self.weight_m.to(exact).t(),
            self.weight_alpha.to(exact).t(),
            self.bias_alpha.to(exact),
            self.weight_beta.to(exact).t(),
            self.bias_beta.to(exact),
            self.weight_write.to(exact).t(),
            self.bias_write.to(exact),
            self.weight_erase.to(exact).t(),
            self.bias_erase.to(exact),
            self.norm_scale.to(exact),
            self.norm_shift.to(exact),
        ]

    def forward(
        self,
        zx: Tensor,
        fed: Tensor,
        states: list[Tensor],
        weights: list[Tensor],
        dt: Tensor,
    ) -> list[Tensor]:
        memory = states[1]
        z = zx + torch.matmul(fed, weights[0]) + torch.matmul(memory, weights[1])
        if self.normed:
            z = nn.functional.layer_norm(z, [z.shape[1]]) * weights[10] + weights[11]
        h = torch.relu(z)
        both = torch.cat([h, memory], dim=1)
        alpha = torch.matmul(both, weights[2]) + weights[3]
        beta = torch.matmul(both, weights[4]) + weights[5]
        write = self.rows(torch.matmul(both, weights[6]) + weights[7])
        erase = self.rows(torch.matmul(both, weights[8]) + weights[9])
        change = alpha.unsqueeze(2) * write - beta.unsqueeze(2) * erase
        return [h, memory + change.mean(dim=1)]

    def rows(self, halves: Tensor) -> Tensor:
        """[N, 2 side] -> the outer product of its halves as k rows of M, each divided by its 5-norm."""
        left, right = halves.chunk(2, 1)
        outer = left.unsqueeze(2) * right.unsqueeze(1)
        flat = outer.reshape(-1, self.heads, self.memory)
        return unit_norm(flat)
