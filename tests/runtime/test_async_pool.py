"""AsyncPool: many concurrent tasks get the same results as separate streams; cancelled tasks, full queues,
closing."""

from __future__ import annotations

import asyncio
import contextlib

import numpy as np
import pytest

from tsm.runtime import AsyncPool, StreamPool, TsmError


def run(model, program, **options):
    async def main():
        async with AsyncPool(StreamPool(model, **options)) as pool:
            return await asyncio.wait_for(program(pool), 60)

    return asyncio.run(main())


async def whole(generation):
    return await generation


def test_many_tasks_at_once(model):
    async def user(pool, i):
        key, found = b"%d" % i, []
        for round in range(3):
            event = await pool.feed(key, [i % 20, round], log_probs=True, user=i)
            found.append(event.log_probs)
            found.append((await pool.generate(key, 5, seed=i)).tokens)
        parts = [part async for part in pool.generate(key, 20, seed=1, save=True)]
        return np.concatenate([*found, *parts]), pool.pool.save(key)

    async def program(pool):
        return await asyncio.gather(*(user(pool, i) for i in range(30)))

    for i, (found, blob) in enumerate(run(model, program, max_queue=8)):  # most wait for room
        stream, expected = model.create_stream(), []
        for round in range(3):
            expected += [stream.score([i % 20, round]), stream.generate(5, seed=i)]
        expected.append(stream.generate(20, seed=1))
        assert np.array_equal(found, np.concatenate(expected))
        assert blob == stream.save_state()


def test_the_requests_of_one_turn_begin_together(model):
    async def program(pool):
        await pool.feed(b"0", [1])  # afterwards the pool's thread sleeps
        await asyncio.gather(*(pool.feed(b"%d" % i, [1]) for i in range(20)))
        await asyncio.gather(*(whole(pool.generate(b"%d" % i, 1)) for i in range(20)))
        return pool.pool.stats()["batch_sizes"]

    assert run(model, program)[:6] == [
        1,
        0,
        0,
        0,
        3,
        0,
    ]  # the steps of a generation: its first logits, its token


def test_a_generation_has_its_last_event(model):
    async def program(pool):
        generation = pool.generate(b"k", 30, seed=2, save=True)
        assert generation.event is None
        parts = [part async for part in generation]
        return np.concatenate(parts), generation.event

    tokens, event = run(model, program)
    stream = model.create_stream()
    assert np.array_equal(tokens, stream.generate(30, seed=2))
    assert np.array_equal(event.tokens, tokens) and event.blob == stream.save_state()


def test_a_cancelled_task_cancels_its_request(model):
    async def program(pool):
        endless = pool.generate(b"k", 1 << 40)
        task = asyncio.ensure_future(whole(endless))
        await pool.feed(b"other", [1])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pool.feed(b"k", [1, 2])  # runs after the cancelled request has ended
        return pool.pool.stats(), pool.pool.position(b"k")

    stats, position = run(model, program)
    assert stats["cancelled"] == 1 and position == 2


def test_leaving_the_loop_cancels_the_request(model):
    """The stream ends up after the last token that was drawn, which is the last one seen or a later one."""

    async def program(pool):
        async with contextlib.aclosing(aiter(pool.generate(b"k", 1 << 40, seed=5))) as parts:
            async for part in parts:
                seen = part
                break
        event = await pool.feed(b"k", [3], save=True)
        return seen, event, pool.pool.stats()

    seen, event, stats = run(model, program)
    assert stats["cancelled"] == 1 and event.position - 1 >= len(seen) > 0
    stream = model.create_stream()
    tokens = stream.generate(event.position - 1, seed=5)
    stream.feed([3])
    assert np.array_equal(tokens[: len(seen)], seen) and event.blob == stream.save_state()


def test_what_goes_wrong_is_raised(model):
    async def program(pool):
        for call in (
            lambda: pool.feed(b"k", [99]),
            lambda: whole(pool.generate(b"k", -1)),
        ):
            with pytest.raises(TsmError, match="accepted"):
                await call()
        with pytest.raises(TsmError) as late:
            await pool.generate(b"k", 1 << 40, timeout=0.01)
        seen = 0
        with pytest.raises(TsmError):
            async for part in pool.generate(b"k", 1 << 40, timeout=0.01):
                seen += len(part)
        return late.value.kind, seen, pool.pool.position(b"k")

    kind, seen, position = run(model, program)
    assert kind == "deadline" and position == seen


def test_a_full_queue(model):
    async def program(pool):
        first = asyncio.ensure_future(whole(pool.generate(b"a", 1 << 40)))
        await asyncio.sleep(0)
        with pytest.raises(TsmError) as full:
            await pool.feed(b"b", [1], wait=False)
        assert full.value.kind == "full"
        waiting = [asyncio.ensure_future(pool.feed(b"b", [1])) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        return [event.position for event in await asyncio.gather(*waiting)]

    assert run(model, program, max_queue=1) == [1, 2, 3]


def test_a_table_full_of_unsaved_streams_is_not_waited_for(model):
    async def program(pool):
        await pool.feed(b"a", [1])
        with pytest.raises(TsmError, match="max_streams = 1"):
            await pool.feed(b"b", [1])

    run(model, program, max_streams=1)


@pytest.mark.parametrize("drain", [True, False])
def test_closing_ends_what_is_awaited(model, drain):
    async def main():
        pool = AsyncPool(StreamPool(model))
        n = 50 if drain else 1 << 40
        tasks = [asyncio.ensure_future(whole(pool.generate(b"%d" % i, n))) for i in range(5)]
        await asyncio.sleep(0)
        await pool.close(drain)
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        with pytest.raises(TsmError) as refused:
            await pool.feed(b"0", [1])
        assert refused.value.kind == "closed"
        return ends

    for end in asyncio.run(asyncio.wait_for(main(), 60)):
        assert (len(end.tokens) == 50) if drain else end.kind == "closed"
