"""The first losses of every architecture, stored in losses.json: no number changes unnoticed.

If a change is intended, write the file again and note the change under *Numerics* in the CHANGELOG:

    TSM_WRITE_GOLDEN=1 pytest tests/golden/test_losses.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tsm.plugin.archs import build_model, get_architecture, list_architectures

FILE = Path(__file__).with_name("losses.json")
GOLDEN: dict[str, list[float]] = json.loads(FILE.read_text()) if FILE.exists() else {}
WRITE = os.environ.get("TSM_WRITE_GOLDEN") == "1"
B, T, V, C = 3, 7, 9, 3

# Dropout masks are the only random numbers that torch draws differently on different CPUs.
STILL = dict.fromkeys(("dropout", "dropouth", "dropouti", "dropoute", "wdrop"), 0.0)


def losses(arch: str) -> list[float]:
    """Losses of a small float64 model before each of 3 updates on the same batch (SGD, learning rate 0.02)."""
    torch.manual_seed(1)
    family = get_architecture(arch).model
    outputs = {} if family == "lm" else {"num_classes": C}
    shape = {"decoder_hidden_size": 8, "decoder_layers": 2, "backend": "reference"}
    model = build_model(arch, vocab_size=V, **outputs, **shape, **STILL).double()
    steps = torch.arange(B * (T + 1)).reshape(B, T + 1)
    tokens = (steps * steps // 3 + steps) % V
    x, target = tokens[:, :-1], tokens[:, 1:] % (C if outputs else V)
    if family == "classifier":
        target = target[:, -1]
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=0.02)
    found = []
    for _ in range(3):
        logits, _ = model(x)
        loss: Tensor = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), target.reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("arch", [a for a in list_architectures() if WRITE or a in GOLDEN])
def test_first_losses_are_the_golden_ones(arch: str) -> None:
    found = losses(arch)
    if WRITE:
        GOLDEN[arch] = found
        lines = (f"  {json.dumps(a)}: {json.dumps(GOLDEN[a])}" for a in sorted(GOLDEN))
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert found[-1] < found[0], "training does not lower the loss"
    assert found == pytest.approx(GOLDEN[arch], rel=1e-6, abs=0)


def test_every_architecture_of_tsm_has_golden_losses() -> None:
    built_in = {a for a in list_architectures() if _is_built_in(a)}
    assert built_in == set(GOLDEN)


def _is_built_in(arch: str) -> bool:
    return get_architecture(arch).preset.__module__.startswith("tsm.")
