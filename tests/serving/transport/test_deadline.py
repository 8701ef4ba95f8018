"""Waiting with a deadline: results, errors and cancellation are those of the coroutine itself."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace

import pytest

from tsm.runtime.serving.transport.deadline import within


async def at_once():
    return 7


async def after(*events):
    for event in events:
        await event.wait()
    return "done"


def test_what_need_not_wait_gets_no_timer(monkeypatch):
    async def main():
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda *_: pytest.fail("a timer"))
        assert await within(1.0, at_once()) == 7

    asyncio.run(main())


def test_results_and_errors():
    async def fails(event):
        try:
            await event.wait()
        finally:
            raise KeyError("inside")

    async def main():
        first, second = asyncio.Event(), asyncio.Event()
        waiting = asyncio.ensure_future(within(60, after(first, second)))
        for event in (first, second):
            await asyncio.sleep(0)
            event.set()
        assert await waiting == "done"
        with pytest.raises(KeyError, match="inside"):
            await within(60, fails(second))
        with pytest.raises(KeyError, match="inside"):  # the coroutine handles the timeout
            await within(0.01, fails(asyncio.Event()))

    asyncio.run(main())


def test_the_deadline():
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await within(0.01, after(asyncio.Event()))
        await asyncio.sleep(0)  # the task itself was not cancelled

    asyncio.run(main())


def test_a_cancelled_task_is_cancelled():
    async def main():
        ended = []

        async def noted():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        task = asyncio.ensure_future(within(60, noted()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(main())


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="cancellations are counted from Python 3.11 on"
)
@pytest.mark.parametrize("deadline_first", [True, False])
def test_a_task_that_is_cancelled_at_the_deadline_is_cancelled(monkeypatch, deadline_first):
    async def main():
        timers = []

        def call_later(_, function):
            timers.append(function)
            return SimpleNamespace(cancel=lambda: None)

        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
        task = asyncio.ensure_future(within(60, after(asyncio.Event())))
        await asyncio.sleep(0)
        (deadline,) = timers
        for cancel in (deadline, task.cancel) if deadline_first else (task.cancel, deadline):
            cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelling() == 1

    asyncio.run(main())


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="cancellations are counted from Python 3.11 on"
)
def test_a_deadline_that_is_ignored_leaves_no_cancellation():
    async def stubborn():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done"

    async def main():
        assert await within(0.01, stubborn()) == "done"
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(main())
