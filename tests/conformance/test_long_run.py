"""A stream may run forever: after ten million float32 steps the states are as accurate as after a thousand."""

from __future__ import annotations

import pytest
import torch

from tsm.export.contract.streams import UNITS, fast_to_slow, long_stream, relative_error, stays_flat
from tsm.plugin.layers import Recurrent

CHUNK = 20_000


def test_error_of_float32_states_stays_flat(compiled_cell):
    check(compiled_cell, dt=1.0, steps=400_000)


@pytest.mark.nightly
def test_with_short_time_steps(compiled_dt_cell):
    check(compiled_dt_cell, dt=1e-3, steps=2_000_000)


def check(compiled_cell, dt, steps):
    options = {"eps": 1e-4} if "eps" in compiled_cell.constants else {}
    offset = fast_to_slow(compiled_cell).flatten()
    layer = Recurrent(compiled_cell.name, len(offset), UNITS, backend="fused", **options)
    of_x = [compiled_cell.gates.index(gate) for gate in compiled_cell.gates_of("x")]
    with torch.no_grad():  # x drives each gate alone
        layer.weight_x.copy_(torch.eye(len(offset)).unflatten(0, (-1, UNITS))[of_x].flatten(0, 1))
        layer.bias.copy_(offset)
        if layer.weight_h is not None:
            layer.weight_h *= 0.5

    @torch.no_grad()
    def run(x, state):
        exact = state["h"].dtype
        each = torch.full((1, x.shape[1]), dt, dtype=exact) if compiled_cell.takes_dt else None
        return layer.to(exact)(x.to(exact), state, each)[1]

    single, double = layer.zero_state(1), layer.double().zero_state(1)
    layer.float()
    errors = []
    for _ in range(steps // CHUNK):
        x = torch.randn(1, CHUNK, len(offset))
        single, double = run(x, single), run(x, double)
        errors.append(max(relative_error(single[n].numpy(), double[n].numpy()) for n in double))
    stays_flat(errors)


@pytest.mark.nightly
def test_a_stream_of_ten_million_steps(compiled_cell, capsys):
    """Runs a stream in the runtime alongside the same model in float64."""
    note = long_stream(compiled_cell, 10_000_000)
    with capsys.disabled():
        print(f" {compiled_cell.name}: {note}", end="")
