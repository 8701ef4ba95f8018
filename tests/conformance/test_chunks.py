"""Any split of a sequence into chunks gives the same outputs and states as one pass."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samples import B, T, make_layer, make_sample
from tolerances import assert_close


def chunked(run, sample, cuts):
    state, outputs = sample.state, []
    for start, end in zip([0, *cuts], [*cuts, T], strict=True):
        dt = None if sample.dt is None else sample.dt[:, start:end]
        lengths = (sample.lengths - start).clamp(0, end - start)
        y, state = run(sample.x[:, start:end], state, dt, lengths)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


splits = st.lists(st.integers(0, T), max_size=5).map(sorted)


def test_reference(cell):
    layer = make_layer(cell, torch.float64)
    sample = make_sample(layer)
    whole, last = sample.run(layer)

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(splits)
    def check(cuts):
        y, state = chunked(layer, sample, cuts)
        assert_close(y, whole, "chunks", "float64", "y")
        for name in state:
            assert_close(state[name], last[name], "chunks", "float64", name)

    check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_compiled_layer_is_bitwise(compiled_cell, dtype):
    layer = make_layer(compiled_cell, dtype, backend="fused")
    sample = make_sample(layer)

    @torch.no_grad()
    def run(x, state, dt, lengths):
        return layer(x, state, dt, lengths)

    whole, last = run(sample.x, sample.state, sample.dt, sample.lengths)

    @settings(max_examples=25, deadline=None, derandomize=True)
    @given(splits)
    def check(cuts):
        y, state = chunked(run, sample, cuts)
        assert torch.equal(y, whole)
        assert all(torch.equal(state[name], last[name]) for name in state)

    check()
    for row in range(B):  # and any batch
        one = slice(row, row + 1)
        dt = None if sample.dt is None else sample.dt[one]
        y, _ = run(
            sample.x[one], {n: s[one] for n, s in sample.state.items()}, dt, sample.lengths[one]
        )
        assert torch.equal(y, whole[one])
