"""A stream may run forever: after ten million float32 steps the states are as accurate as after a thousand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.layers import Recurrent
from tsm.runtime import Model

CHUNK, H = 20_000, 4
BOUND = 2e-4
"""Largest |float32 - float64| / max(1, |float64|) of any state. A state that keeps a share q per step
accumulates the rounding of about 1 / (1 - q) steps; for the slowest unit here that is about 3,000."""


def test_error_of_float32_states_stays_flat(compiled_cell):
    check(compiled_cell, dt=1.0, steps=400_000)


@pytest.mark.nightly
def test_with_short_time_steps(compiled_dt_cell):
    check(compiled_dt_cell, dt=1e-3, steps=2_000_000)


def check(compiled_cell, dt, steps):
    options = {"eps": 1e-4} if "eps" in compiled_cell.constants else {}
    offset = fast_to_slow(compiled_cell).flatten()
    layer = Recurrent(compiled_cell.name, len(offset), H, backend="fused", **options)
    of_x = [compiled_cell.gates.index(gate) for gate in compiled_cell.gates_of("x")]
    with torch.no_grad():  # x drives each gate alone
        layer.weight_x.copy_(torch.eye(len(offset)).unflatten(0, (-1, H))[of_x].flatten(0, 1))
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
        errors.append(max(difference(single[n].numpy(), double[n].numpy()) for n in double))
    stays_flat(errors)


@pytest.mark.nightly
def test_a_stream_of_ten_million_steps(compiled_cell, tmp_path, capsys):
    """Runs a stream in the runtime alongside the same model in float64."""
    model = build_model(
        "lstm_tagger", cell=compiled_cell.name, input_size=1, num_classes=1, decoder_hidden_size=H
    ).eval()
    with torch.no_grad():
        if model.layers[0].weight_h is not None:
            model.layers[0].weight_h *= 0.5
        model.layers[0].bias += fast_to_slow(compiled_cell).flatten()
    package(model, tmp_path / "model.tsm")
    stream, state = Model.load(tmp_path / "model.tsm").create_stream(), None
    model.double()
    generator = np.random.default_rng(1)
    errors = []
    for _ in range(10_000_000 // CHUNK):
        x = generator.normal(size=(CHUNK, 1)).astype(np.float32)
        dt = None
        if compiled_cell.takes_dt:
            dt = generator.uniform(0.1, 2, size=CHUNK).astype(np.float32)
        stream.feed(x, dt, last_only=True)
        steps = None if dt is None else torch.from_numpy(dt).double()[None]
        with torch.no_grad():
            state = model.features(torch.from_numpy(x).double()[None], state=state, dt=steps).state
        (exact,), found = state, stream.state()
        errors.append(max(difference(found[n][0], exact[n][0].numpy()) for n in exact))
    assert stream.position == 10_000_000
    with capsys.disabled():
        print(f" {compiled_cell.name}: largest error {max(errors):.1e}", end="")
    stays_flat(errors)


def fast_to_slow(cell) -> torch.Tensor:
    """An offset for z [G, H] with which each unit forgets more slowly than the one before it, through its
    forget, update or reset gate."""
    offset = torch.zeros(len(cell.gates), H)
    for gate, sign, longest in (("f", 1, 4), ("u", 1, 4), ("r", -1, 8)):
        if gate in cell.gates and (bias := cell.gate_bias(gate)):
            logits = sign * torch.linspace(0, longest, H)
            offset[cell.gates.index(gate)] = torch.tensor([bias(x) for x in logits.tolist()])
            break
    return offset


def difference(found: np.ndarray, exact: np.ndarray) -> float:
    return float((np.abs(found - exact) / np.maximum(1, np.abs(exact))).max())


def stays_flat(errors: list[float]) -> None:
    quarter = len(errors) // 4
    early, late = max(errors[:quarter]), max(errors[-quarter:])
    assert late < BOUND, f"error {late:.2e} in the last quarter"
    assert late < 10 * early + 1e-6, f"error grew from {early:.2e} to {late:.2e}"
