"""The recurrence on a GPU in bfloat16: outputs, states and all gradients against the float64 program."""

from __future__ import annotations

import pytest
import torch

from tolerances import assert_close
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.reference import reference_recurrence
from tsm.runtime import _core

pytestmark = pytest.mark.gpu

SHAPES = [(1, 3, 1), (3, 5, 7), (20, 10, 154), (100, 6, 512), (20, 5, 1150), (1000, 4, 64)]


def address(tensor):
    return 0 if tensor is None else tensor.data_ptr()


class Case:
    """One layer's arrays on the device, and the kernels' results in them."""

    def __init__(self, cell, batch, steps, hidden, lengths=None, dt=None):
        torch.manual_seed(0)
        self.cell, self.shape = cell, (batch, steps, hidden)
        self.lengths, self.dt = lengths, dt
        self.options = cell.check(hidden, {})
        layer = Recurrent(cell.name, 1, hidden)
        states, width = len(cell.states), len(cell.gates) * hidden
        reads = int(_core.cells[cell.name]["reads"]).bit_count()
        self.u = layer.weight_h.detach().bfloat16().cuda()
        self.vectors = torch.stack(
            [v.detach() for v in layer.vectors().values()] or [torch.empty(0, hidden)]
        ).reshape(-1, hidden)
        self.vectors = self.vectors.cuda()
        self.zx = torch.randn(batch, steps, width, device="cuda").bfloat16()
        self.state = torch.rand(states, batch, hidden, device="cuda") / 2
        self.grad_y = torch.randn(batch, steps, hidden, device="cuda").bfloat16()
        self.grad_last = torch.randn(states, batch, hidden, device="cuda")
        self.y = torch.empty_like(self.grad_y)
        self.last, self.grad_state = (torch.empty_like(self.state) for _ in range(2))
        self.z = torch.empty(batch, steps, width, device="cuda")
        self.trail = torch.empty(reads, batch, steps, hidden, device="cuda")
        self.grad_z = torch.empty_like(self.zx)
        self.grad_vectors = torch.empty(len(cell.vectors), batch, hidden, device="cuda")

    def run(self):
        batch, _, hidden = self.shape
        name, stream = self.cell.name, torch.cuda.current_stream().cuda_stream
        constants = [float(self.options[c]) for c in self.cell.constants]
        size = max(_core.recurrence_cuda_workspace(name, batch, hidden, b) for b in (False, True))
        scratch = torch.empty(max(size, 16), dtype=torch.uint8, device="cuda")
        shared = [self.dt, self.lengths]
        forward = [self.zx, self.u, self.state, self.vectors, *shared]
        forward += [self.y, self.last, self.z, self.trail, scratch]
        backward = [self.u, self.vectors, *shared, self.z, self.trail, self.grad_y, self.grad_last]
        backward += [self.grad_z, self.grad_state, self.grad_vectors, scratch]
        _core.recurrence_forward_cuda(name, constants, *self.shape, *map(address, forward), stream)
        _core.recurrence_backward_cuda(
            name, constants, *self.shape, *map(address, backward), stream
        )
        return [t.clone() for t in (self.y, self.last, self.grad_z, self.grad_state)]

    def check(self):
        exact = {
            "zx": self.zx.double().requires_grad_(),
            "state": self.state.double().requires_grad_(),
            "vectors": self.vectors.double().requires_grad_(),
        }
        state = dict(zip(self.cell.states, exact["state"], strict=True))
        y, last = reference_recurrence(
            self.cell,
            exact["zx"],
            {"weight_h": self.u.double()},
            state,
            dict(zip(self.cell.vectors, exact["vectors"], strict=True)),
            self.options,
            None if self.dt is None else self.dt.double(),
            self.lengths,
        )
        last = torch.stack([last[s] for s in self.cell.states])
        ((y * self.grad_y).sum() + (last * self.grad_last).sum()).backward()
        assert_close(self.y, y, "fused", "bfloat16", "y")
        assert_close(self.last, last, "fused", "bfloat16", "last")
        assert_close(self.grad_z, exact["zx"].grad, "fused", "bfloat16", "grad zx")
        assert_close(self.grad_state, exact["state"].grad, "fused", "bfloat16", "grad state")
        if self.cell.vectors:
            scale = exact["vectors"].grad.abs().max()  # sums over the batch
            expected = exact["vectors"].grad / scale
            assert_close(self.grad_vectors.sum(1) / scale, expected, "fused", "bfloat16", "vectors")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_recurrence_equals_the_program(compiled_cell, shape):
    assert _core.with_cuda, "a GPU is here, but the core was built without CUDA"
    case = Case(compiled_cell, *shape)
    first = case.run()
    case.check()
    for name, once, again in zip(
        ("y", "last", "grad_z", "grad_state"), first, case.run(), strict=True
    ):
        assert torch.equal(once, again), f"{name} differs from one run to the next"


def test_lengths_and_time_steps(compiled_cell):
    assert _core.with_cuda, "a GPU is here, but the core was built without CUDA"
    batch, steps, hidden = 17, 9, 48
    lengths = torch.arange(batch, device="cuda") % (steps + 1)
    dt = torch.rand(batch, steps, device="cuda") + 0.5 if compiled_cell.takes_dt else None
    case = Case(compiled_cell, batch, steps, hidden, lengths, dt)
    case.run()
    case.check()
