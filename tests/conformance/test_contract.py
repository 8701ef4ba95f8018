"""Every registered cell fulfils the contract that `tsm-cell check` tries on a cell from anywhere."""

from __future__ import annotations

import pytest
import torch

from tsm.export.contract.checks import CHECKS, SEED
from tsm.plugin.cells import get_cell, list_cells

PAIRS = [
    (get_cell(name), check)
    for name in list_cells()
    for check in CHECKS
    if not check.why_not(get_cell(name))
]


@pytest.mark.parametrize("any_cell, check", PAIRS, ids=[f"{c.name}-{k.name}" for c, k in PAIRS])
def test_check(any_cell, check):
    torch.manual_seed(SEED)
    assert check.run(any_cell), "a check says what it measured"


def test_what_does_not_apply(cell):
    left_out = set() if cell.elementwise else {"tape"}
    left_out |= set() if cell.bounded else {"extremes", "bounded"}
    assert {check.name for check in CHECKS if check.why_not(cell)} == left_out
