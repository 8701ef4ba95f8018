"""Runs only the GPU recurrence: the program that `make sanitize-gpu` checks with racecheck.

    compute-sanitizer --tool racecheck --kernel-name kns=tsm python tests/conformance/racecheck_main.py

The tests of the layer also need cuBLAS's matrix products, on which racecheck (of CUDA 13.0) itself fails.
Those tests check the numbers; here two runs must give the same bits. Grids are left out: see
docs/internals/kernels_exchange.md.
"""

from __future__ import annotations

import sys

import torch

from tsm.plugin.layers.core import DTYPES, _core, saved_state_count
from tsm.plugin.layers.gpu import COPIED, widened
from tsm.plugin.layers.sketch import recurrence_once

CELL, CONSTANTS = "plstm", [0.001]
# In bfloat16: U in registers, then clusters. In float32: a team of one block, and clusters of three sizes.
WAYS = [(17, 9, 38), (131, 11, 117), (20, 9, 200)]


def both_directions(batch: int, steps: int, hidden: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Runs forward and backward with lengths and dt; returns y, the last state, and the gradients of states and
    vectors."""
    info = _core.cells[CELL]
    gates, states, vectors = info["gates"], info["states"], info["vectors"]
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator)

    zx = (drawn(batch, steps, gates * hidden) - 0.5).to("cuda", dtype)
    u = (drawn(gates * hidden, hidden) / hidden**0.5).to("cuda", dtype)
    state, vector = drawn(states, batch, hidden).cuda(), (drawn(vectors, hidden) + 0.1).cuda()
    dt, lengths = (drawn(batch, steps) + 0.5).cuda(), (torch.arange(batch) % (steps + 1)).cuda()
    grad_y, grad_last = drawn(batch, steps, hidden).to("cuda", dtype), drawn(states, batch, hidden)
    before = torch.zeros(saved_state_count(CELL), batch, steps, hidden).cuda()
    y, last = torch.zeros(batch, steps, hidden).to("cuda", dtype), torch.zeros_like(state)
    grad_state, grad_vectors = torch.zeros_like(state), torch.zeros(vectors, batch, hidden).cuda()
    how = (CELL, CONSTANTS, (batch, steps, hidden), steps, hidden)
    both = {"weight_h": u, "vectors": vector, "dt": dt, "lengths": lengths, "saved_states": before}
    recurrence_once(*how, False, **both, zx=zx, state=state, y=y, last=last, z=zx)
    recurrence_once(
        *how,
        True,
        **both,
        z=zx,
        grad_y=grad_y,
        grad_last=grad_last.cuda(),
        grad_z=zx,
        grad_state=grad_state,
        grad_vectors=grad_vectors,
    )
    return [found.cpu() for found in (y, last, zx, grad_state, grad_vectors)]


def main() -> int:
    ways = set()
    for dtype in COPIED:
        name = DTYPES[dtype]
        for batch, steps, hidden in WAYS:
            plans = [
                _core.recurrence_cuda_take_plan(
                    cell=CELL,
                    dtype=name,
                    device=0,
                    batch=batch,
                    hidden=widened(hidden),
                    backward=back,
                    rank=0,
                )
                for back in (False, True)
            ]
            print(f"{name} {batch}, {steps}, {hidden}: {' | '.join(plans)}", flush=True)
            ways |= {plan.split()[0] for plan in plans}
            shape = (batch, steps, widened(hidden))
            first, again = (both_directions(*shape, dtype) for _ in range(2))
            for one, other in zip(first, again, strict=True):
                assert one.isfinite().all() and torch.equal(one, other)
    clusters = {"cluster"} if "bulk copies" in _core.recurrence_cuda_path(device=0) else set()
    assert ways >= {"registers", "alone"} | clusters, ways
    return 0


if __name__ == "__main__":
    sys.exit(main())
