"""Waiting with a deadline, without the task that asyncio.wait_for creates for every call."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


async def within(seconds: float, what: Coroutine[Any, Any, T]) -> T:
    """Awaits something in the current task; raises asyncio.TimeoutError after `seconds`.

    A coroutine that never waits needs no timer: it ends in the first `send`. If somebody else
    cancels the task at the same time, it is cancelled (Python 3.10 cannot tell the two apart).
    """
    try:
        first = what.send(None)
    except StopIteration as end:
        done: T = end.value
        return done
    task = asyncio.current_task()
    assert task is not None
    late, before = False, 0
    if sys.version_info >= (3, 11):
        before = task.cancelling()

    def cancel() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, cancel)
    try:
        rest: T = await _Rest(what, first)
        return rest
    except asyncio.CancelledError:
        if not late or (sys.version_info >= (3, 11) and task.cancelling() > before + 1):
            raise
        raise asyncio.TimeoutError from None
    finally:
        timer.cancel()
        if late and sys.version_info >= (3, 11):
            task.uncancel()


class _Rest:
    """Continues awaiting a coroutine that has already started, from the first future that it waits for."""

    def __init__(self, what: Coroutine[Any, Any, Any], first: Any) -> None:
        self.what, self.next = what, first

    def __await__(self) -> Generator[Any, Any, Any]:
        try:
            while True:
                try:
                    given = yield self.next
                except BaseException as error:  # including GeneratorExit: the coroutine handles it
                    self.next = self.what.throw(error)
                else:
                    self.next = self.what.send(given)
        except StopIteration as end:
            return end.value
