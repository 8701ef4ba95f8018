"""Connections whose client does not read what was sent: they are aborted, since closing one would wait for the
client."""

from __future__ import annotations

import asyncio
from typing import Any


class Unread(asyncio.Protocol):
    """Comes before uvicorn's protocol among the base classes."""

    seconds: float  # to read what was sent
    loop: Any
    transport: Any
    cut: Any = None  # a timer

    def is_ending(self) -> bool:
        """Whether nothing more will be sent."""
        raise NotImplementedError

    def cut_after(self, seconds: float) -> None:
        if self.cut is None:
            self.cut = self.loop.call_later(seconds, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.cut_after(self.seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.is_ending():
            self._cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self.cut is not None:
            self.cut.cancel()
            self.cut = None
