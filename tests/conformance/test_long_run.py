"""A stream may run for ever: after two million float32 steps the states are as exact as after a thousand."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.fused import fused_recurrence

STEPS, CHUNK, H = 2_000_000, 20_000, 4
BOUND = 2e-4
"""Largest |float32 - float64| / max(1, |float64|) of any state. A state that keeps the share q of itself each
step holds the rounding of about 1 / (1 - q) steps; the slowest unit here has 1 / (1 - q) near 3,000."""


@pytest.mark.slow
def test_error_of_float32_states_stays_flat(compiled_cell):
    check(compiled_cell, dt=1.0)


@pytest.mark.slow
def test_with_short_time_steps(compiled_dt_cell):
    check(compiled_dt_cell, dt=1e-3)


def check(compiled_cell, dt):
    options = {"eps": 1e-4} if "eps" in compiled_cell.constants else {}
    layer = Recurrent(compiled_cell.name, 1, H, **options)
    # Units from fast to slow: a forget gate that lets go, or a reset gate that fires, ever more seldom.
    offset = torch.zeros(len(compiled_cell.gates), H)
    for gate, sign, longest in (("f", 1, 4), ("r", -1, 8)):
        if gate in compiled_cell.gates and (bias := compiled_cell.gate_bias(gate)):
            logits = sign * torch.linspace(0, longest, H)
            offset[compiled_cell.gates.index(gate)] = torch.tensor(
                [bias(x) for x in logits.tolist()]
            )
            break

    def run(zx, state):
        exact = state["h"].dtype
        return fused_recurrence(
            compiled_cell,
            zx.to(exact),
            {"weight_h": layer.weight_h.detach() * 0.5},
            state,
            {name: value.detach().to(exact) for name, value in layer.vectors().items()},
            layer.options,
            torch.full((1, zx.shape[1]), dt, dtype=exact) if compiled_cell.takes_dt else None,
        )[1]

    single, double = layer.zero_state(1), layer.double().zero_state(1)
    layer.float()
    errors = []
    for _ in range(STEPS // CHUNK):
        zx = torch.randn(1, CHUNK, len(compiled_cell.gates) * H) + offset.flatten()
        single, double = run(zx, single), run(zx, double)
        errors.append(
            max(
                ((single[n].double() - double[n]).abs() / double[n].abs().clamp(min=1)).max().item()
                for n in double
            )
        )
    quarter = len(errors) // 4
    early, late = max(errors[:quarter]), max(errors[-quarter:])
    assert late < BOUND, f"error {late:.2e} in the last quarter"
    assert late < 10 * early + 1e-6, f"error grew from {early:.2e} to {late:.2e}"
