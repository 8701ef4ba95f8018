"""Cuts text at the first stop text, however the text is split into parts."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    def __init__(self, stops: Sequence[str]) -> None:
        self.stops = stops
        self.held = ""  # possibly the beginning of a stop text

    def add(self, part: str) -> tuple[str, bool]:
        """Returns the text that can be sent now (up to a stop text), and whether a stop text was found."""
        text = self.held + part
        found = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        if found:
            self.held = ""
            return text[: min(found)], True
        keep = max((_overlap(text, stop) for stop in self.stops), default=0)
        self.held = text[len(text) - keep :]
        return text[: len(text) - keep], False

    def close(self, part: str) -> str:
        """The remaining text, after the last part."""
        text, stopped = self.add(part)
        return text if stopped else text + self.held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of the text that is a prefix of the stop text."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
