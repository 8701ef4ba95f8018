"""The generated cells on a GPU: one step, forward and backward, compared with the float64 program."""

from __future__ import annotations

import pytest
import torch

from tolerances import assert_close
from tsm.plugin.cells.tape.torch_ops import TorchOps
from tsm.runtime import _core

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("batch, hidden", [(1, 1), (3, 7), (100, 154)])
def test_step_equals_the_program(compiled_cell, batch, hidden):
    assert _core.with_cuda, "a GPU is here, but the core was built without CUDA"
    cell, G = compiled_cell, len(compiled_cell.gates)
    names = ["z", "state", "vectors", "dt"]
    values = {
        "z": torch.randn(batch, G * hidden) * 3,
        "state": torch.rand(len(cell.states), batch, hidden),
        "vectors": torch.rand(len(cell.vectors), hidden) * 0.9 + 0.05,
        "dt": torch.rand(batch) + 0.5 if cell.takes_dt else None,
    }
    incoming = torch.randn(len(cell.states), batch, hidden)
    device = {n: None if v is None else v.cuda() for n, v in values.items()}
    read = {n: 0 if device[n] is None else device[n].data_ptr() for n in names}
    constants = list(cell.constants.values())
    stream = torch.cuda.current_stream().cuda_stream
    new = torch.empty(len(cell.states), batch, hidden, device="cuda")
    grads = [
        torch.empty(batch, G * hidden, device="cuda"),
        torch.empty_like(new),
        torch.empty(len(cell.vectors), batch, hidden, device="cuda"),
    ]
    d_new = incoming.cuda()
    both = {"cell": cell.name, "constants": constants, "batch": batch, "hidden": hidden}
    both |= {**read, "stream": stream}
    _core.step_forward_cuda(**both, next=new.data_ptr())
    names = ("grad_z", "grad_state", "grad_vectors")
    written = {n: g.data_ptr() for n, g in zip(names, grads, strict=True)}
    _core.step_backward_cuda(**both, grad_next=d_new.data_ptr(), **written)

    exact = {n: None if v is None else v.double().requires_grad_() for n, v in values.items()}
    vectors = dict(zip(cell.vectors, exact["vectors"], strict=True))
    state = dict(zip(cell.states, exact["state"], strict=True))
    dt = 1.0 if exact["dt"] is None else exact["dt"][:, None]
    no_weights = {"weight_h": torch.zeros(G * hidden, hidden, dtype=torch.float64)}
    out = cell.advance(
        TorchOps, exact["z"], state["h"], no_weights, state, vectors, cell.constants, dt
    )
    expected = torch.stack([out[s] for s in cell.states])
    assert_close(new, expected, "cuda_step", "float32", "states")
    (expected * incoming.double()).sum().backward()
    assert_close(grads[0], exact["z"].grad, "cuda_step", "float32", "grad z")
    assert_close(grads[1], exact["state"].grad, "cuda_step", "float32", "grad state")
    if cell.vectors:
        assert_close(grads[2].sum(1), exact["vectors"].grad, "fused", "float32", "grad vectors")
