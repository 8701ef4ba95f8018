"""The compiled core, where it was built: the one place where the plugin reaches for it."""

from __future__ import annotations

missing = ""
try:
    from tsm.runtime import _core
except ImportError as error:  # a source tree that was not built: the reference serves
    _core = None  # type: ignore[assignment]
    missing = f"the compiled core is not there ({error}); build it with `pip install .`"
