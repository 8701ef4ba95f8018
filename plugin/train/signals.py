"""Graceful stops: after a signal, training finishes the current update and saves a checkpoint.

    SIGINT, SIGTERM   Ctrl-C, kill, a scheduler; a second one is not caught
    SIGHUP            the terminal is closed; not caught if already ignored (nohup)
    SIGUSR1, SIGXCPU  a scheduler's warning, the CPU time limit; not caught if already ignored

The last three may be repeated (a terminal sends SIGHUP twice, the kernel repeats SIGXCPU every second), so
after the first one they are ignored until the process ends.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

URGENT = (signal.SIGINT, signal.SIGTERM)
REPEATED = tuple(
    getattr(signal, name) for name in ("SIGHUP", "SIGUSR1", "SIGXCPU") if hasattr(signal, name)
)


class StopRequest:
    """with StopRequest() as stop: ... stop.requested is the signal's name, or None.

    Outside the main thread nothing is caught, since Python delivers no signals there.
    """

    def __init__(self) -> None:
        self.requested: str | None = None
        self._before: dict[signal.Signals, Any] = {}
        self._came: set[int] = set()

    def ask(self, why: str) -> None:
        """Requests a stop, as a signal does."""
        self.requested = why

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.ask(signal.Signals(number).name)
        self._came.add(number)
        self._restore(URGENT)

    def _restore(self, numbers: tuple[signal.Signals, ...]) -> None:
        for number in numbers:
            if number in self._before:
                signal.signal(number, self._before.pop(number))

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (*URGENT, *REPEATED):
                if number in URGENT or signal.getsignal(number) != signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number in self._came.intersection(REPEATED):
            signal.signal(number, signal.SIG_IGN)  # Python's finalisation would reset a handler
            self._before.pop(signal.Signals(number), None)
        self._restore((*URGENT, *REPEATED))
