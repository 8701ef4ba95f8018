"""The cells, one formula each. To add a cell, add a file here and an import below, and run `make cells`."""

from . import (  # noqa: F401  (importing a cell registers it)
    gru,
    janet,
    lstm,
    lstm_decay,
    lstm_fast,
    lstm_refine,
    lstm_softsign,
    min_gru,
    nru,
    plstm,
    slstm,
)
from .base import CELLS, Cell, CompositeCell, Vector, get_cell, list_cells, register_cell

__all__ = ["CELLS", "Cell", "CompositeCell", "Vector", "get_cell", "list_cells", "register_cell"]
