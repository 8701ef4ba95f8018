"""Any split of a sequence into chunks gives the bits of one pass in the compiled layer."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsm.export.contract.formula import in_chunks
from tsm.export.contract.samples import B, T, make_layer, make_sample

splits = st.lists(st.integers(0, T), max_size=5).map(sorted)


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
        y, state = in_chunks(run, sample, cuts)
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
