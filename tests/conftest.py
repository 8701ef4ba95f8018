"""Fixtures for all tests: cells from the registry as parameters."""

from __future__ import annotations

import hypothesis
import pytest
import torch

from tsm.plugin.cells import Cell, get_cell, list_cells
from tsm.runtime import _core

pytest_plugins = ["elsewhere"]

# Hypothesis examples have no deadline, because the machine may be shared.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A test that takes one of these arguments runs for every registered cell that fits.
CELL_ARGUMENTS = {
    "cell": lambda c: True,
    "elementwise_cell": lambda c: c.elementwise,
    "compiled_cell": lambda c: c.name in _core.cells,
    "compiled_u_cell": lambda c: c.name in _core.cells and c.gates_of("h"),
    "compiled_dt_cell": lambda c: c.name in _core.cells and c.takes_dt,
    "bounded_cell": lambda c: c.bounded,
    "bounded_elementwise_cell": lambda c: c.bounded and c.elementwise,
    "dt_cell": lambda c: c.takes_dt,
    "timeless_cell": lambda c: not c.takes_dt,
    "representative_cell": lambda c: c in representatives(),
    "power_law_cell": lambda c: "age" in c.states and "p" in c.vectors and "eps" in c.constants,
}


def representatives() -> list[type[Cell]]:
    """The compiled cells with the smallest and the largest declaration.

    They are for tests of the code around a cell (plans, graphs, memory), which depends only on its declaration.
    """
    compiled = [c for c in map(get_cell, list_cells()) if c.name in _core.cells]
    by_size = sorted(compiled, key=lambda c: len(c.gates) + len(c.states) + len(c.vectors))
    return [by_size[0], by_size[-1]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, fits in CELL_ARGUMENTS.items():
        if argument in metafunc.fixturenames:
            cells = [c for c in map(get_cell, list_cells()) if fits(c)]
            metafunc.parametrize(argument, cells, ids=[c.name for c in cells])


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test draws the same random numbers, whether it runs alone or with others."""
    torch.manual_seed(20210601)
