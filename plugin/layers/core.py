"""The compiled core, where it was built: the one place where the plugin reaches for it."""

from __future__ import annotations

from pathlib import Path

import torch

missing = ""
on_torchs_threads = False
"""Whether CPU training runs on them; on its own otherwise."""
try:
    from tsm.runtime import _core
except ImportError as error:  # a source tree that was not built: the reference serves
    _core = None  # type: ignore[assignment]
    missing = f"the compiled core is not there ({error}); build it with `pip install .`"
else:
    # One set of threads: torch's wait awake for their next product, on the cores that others would need.
    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    on_torchs_threads = _core.share_threads(str(library))
