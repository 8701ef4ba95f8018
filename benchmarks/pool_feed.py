"""tsm-bench pool --feed STEPS: chunks of STEPS tokens for all streams through a StreamPool, beside feed_many.

feed_many gets the chunks of all streams in one call. The pool gets one request per chunk; each stream has two
in the queue, so that a batch can begin as soon as another ends. Both return the last logits, which must agree.
Both are measured from C++ and from Python, which takes several microseconds per request.
"""

from __future__ import annotations

import select
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .rivals import LIMIT, difference

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..runtime import Model, PoolEvent, StreamPool

    Chunks = list[NDArray[np.int64]]
    Logits = list[NDArray[np.float32]]

ROUNDS, QUEUED = 8, 2  # chunks per stream in each turn; how many of them are queued at once
WAYS = ("feed_many, C++", "pool, C++", "feed_many", "pool")


def measure_feed(
    model: Model, path: Path, dtype: str, streams: int, steps: int, turns: int
) -> dict[str, float]:
    """Tokens per second of feed_many and of the pool: medians over alternating turns. path: the model's."""
    from ..runtime import _core

    loop = _core.FeedLoop(str(path), dtype, 1, streams, steps, model.device, last_only=True)
    draw = np.random.default_rng(1)
    chunks = [draw.integers(0, model.vocab_size, steps) for _ in range(streams)]
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(turns + 1):  # the first one warms up
        taken["feed_many, C++"].append(loop.run(ROUNDS))
        taken["pool, C++"].append(loop.run_pool(ROUNDS))
        start = time.perf_counter()
        expected = in_one_call(model, chunks)
        middle = time.perf_counter()
        found = pooled(model, chunks)
        taken["feed_many"].append(middle - start)
        taken["pool"].append(time.perf_counter() - middle)
        share = difference(np.stack(found), np.stack(expected))
        if not share <= LIMIT[dtype]:
            raise RuntimeError(
                f"the pool's logits differ from feed_many's by {share:.3g} of the largest;"
                f" accepted: {LIMIT[dtype]:g}"
            )
    tokens = ROUNDS * streams * steps
    return {name: tokens / statistics.median(times[1:]) for name, times in taken.items()}


def in_one_call(model: Model, chunks: Chunks) -> Logits:
    streams = [model.create_stream() for _ in chunks]
    for _ in range(ROUNDS):
        last = model.feed_many(streams, chunks, last_only=True)
    return [logits.reshape(-1) for logits in last]


def pooled(model: Model, chunks: Chunks) -> Logits:
    from ..runtime import StreamPool

    keys = [b"%d" % i for i in range(len(chunks))]
    left, asked = [ROUNDS] * len(chunks), dict[int, int]()
    last: Logits = [np.empty(0, np.float32)] * len(chunks)
    with StreamPool(model, max_queue=QUEUED * len(chunks)) as pool:

        def ask(i: int) -> None:
            if left[i]:
                left[i] -= 1
                asked[pool.feed(keys[i], chunks[i], logits="last")] = i

        for i in QUEUED * [*range(len(chunks))]:
            ask(i)
        for i, event in ended(pool, asked):
            assert event.logits is not None
            last[i] = event.logits
            ask(i)
    return last


def ended(pool: StreamPool, asked: dict[int, int]) -> Iterator[tuple[int, PoolEvent]]:
    """The streams of the requests as they end, with their events. asked: ticket -> stream; it may grow."""
    while asked:
        select.select([pool.fileno()], [], [])
        for event in pool.take(len(asked)):
            if event.error is not None:
                raise event.error
            yield asked.pop(event.ticket), event
