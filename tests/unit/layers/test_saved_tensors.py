"""Hooks may replace what backward reads: an array of another size is an error, never a read past its end."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.layers import Recurrent


def saved_by(layer, x):
    """How many tensors a forward pass saves."""
    count = []
    with torch.autograd.graph.saved_tensors_hooks(count.append, lambda t: t):
        layer(x)
    return len(count)


def test_each_of_another_size(compiled_cell):
    layer = Recurrent(compiled_cell.name, 3, 40)
    x = torch.randn(2, 5, 3, requires_grad=True)
    for which in range(saved_by(layer, x)):
        seen = []

        def pack(t, seen=seen):
            seen.append(t)
            return len(seen) - 1, t

        def unpack(packed, which=which):
            index, t = packed
            return t.flatten()[:-1] if index == which else t

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y, _ = layer(x)
        with pytest.raises((ValueError, RuntimeError), match="accepted"):
            y.sum().backward()
