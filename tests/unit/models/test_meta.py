"""Layers and models on the meta device: shapes without numbers, for planning before allocation."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from small_models import small
from tsm.plugin import list_architectures
from tsm.plugin.layers import Recurrent

B, T, I, H = 2, 5, 3, 8
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_every_cell(cell):
    with torch.device("meta"):
        layer = Recurrent(cell.name, I, H)
        x, lengths = torch.ones(B, T, I), torch.ones(B, dtype=torch.int64)
        dt = torch.ones(B, T) if cell.takes_dt else None
    y, state = layer(x, layer.zero_state(B), dt, lengths)
    assert y.is_meta and y.shape == (B, T, H)
    assert {name: tuple(value.shape) for name, value in state.items()} == {
        name: (B, width) for name, width in layer.widths.items()
    }
    assert all(value.is_meta for value in [*layer.parameters(), *state.values()])


def test_fixed_vectors(power_law_cell):
    with torch.device("meta"):
        layer = Recurrent(power_law_cell.name, I, H, p=0.7)
        assert layer.p.is_meta and layer(torch.ones(B, T, I))[0].is_meta
        with pytest.raises(ValueError, match=r"p = -1; accepted"):
            Recurrent(power_law_cell.name, I, H, p=-1)


@pytest.mark.parametrize("arch", list_architectures())
def test_every_architecture(arch):
    """This includes architectures whose initialisers compute their values on the CPU."""
    here = small(arch)
    with torch.device("meta"):
        model = small(arch)
        logits, _ = model(torch.zeros(B, T, dtype=torch.int64))
    assert logits.is_meta
    assert logits.shape == here(torch.zeros(B, T, dtype=torch.int64))[0].shape


BUILD = """
import sys, torch
from small_models import small
from tsm.plugin import list_architectures
with torch.device("meta"):
    for arch in list_architectures():
        small(arch)
print("torch._dynamo" in sys.modules)
"""


def test_building_does_not_import_the_compiler():
    """Every command that opens a checkpoint builds its model here first."""
    found = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, env=ENVIRONMENT)
    assert found.stdout == b"False\n", found.stderr.decode()
