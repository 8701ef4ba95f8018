"""Waiting with a deadline: results, errors and cancellation are those of the coroutine itself."""

from __future__ import annotations

import asyncio

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
        with pytest.raises(KeyError, match="inside"):  # the timeout ends in the coroutine
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
