"""A polite stop: SIGINT and SIGTERM ask, the loop finishes its step and saves."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """with StopRequest() as stop: ... stop.requested is the signal's name, or None.

    A second signal is not held back: it acts as it would have without us. Outside the main thread,
    where Python delivers no signals, nothing is caught.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._before: dict[signal.Signals, Any] = {}

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.requested = signal.Signals(number).name
        self._restore()

    def _restore(self) -> None:
        for caught, handler in self._before.items():
            signal.signal(caught, handler)
        self._before.clear()

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in CAUGHT}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()
