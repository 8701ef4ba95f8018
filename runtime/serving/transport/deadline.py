"""Waiting with a deadline, without the task that asyncio.wait_for creates for every call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(seconds: float, what: Awaitable[T]) -> T:
    """Awaits something in the current task; raises asyncio.TimeoutError after `seconds`."""
    task = asyncio.current_task()
    assert task is not None
    late = False

    def cancel() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, cancel)
    try:
        return await what
    except asyncio.CancelledError:
        if not late:
            raise
        if hasattr(task, "uncancel"):  # from Python 3.11 on
            task.uncancel()
        raise asyncio.TimeoutError from None
    finally:
        timer.cancel()
