"""The runtime is for servers: importing it is fast and loads nothing but numpy."""

from __future__ import annotations

import subprocess
import sys

import tsm
from tsm.runtime import _core


def test_no_torch():
    code = "import sys, tsm.runtime; print([m for m in sys.modules if m.split('.')[0] == 'torch'])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_cells_and_commands_load_without_torch():
    block = "import sys; sys.modules['torch'] = None\n"
    code = (
        block
        + "from tsm.plugin import list_cells; import tsm.plugin.cells.generate; print(len(list_cells()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(result.stdout) >= 10


def test_one_version():
    assert _core.__version__ == tsm.__version__
