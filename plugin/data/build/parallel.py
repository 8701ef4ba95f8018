"""Maps a function over a stream with N worker processes: results in order, at most 2 N + 2 items in flight.

The result does not depend on N. If a worker dies, an error is raised.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_shared: tuple[Any, ...] = ()  # in a worker: the `shared` arguments of ordered_map


def check_workers(workers: int) -> int:
    """Returns workers, or raises if the number is not valid."""
    if not 1 <= workers <= 256:
        raise ValueError(f"--workers is {workers}; accepted: 1 to 256")
    return workers


def ordered_map(
    function: Callable[..., Result],
    items: Iterable[Item],
    workers: int = 1,
    shared: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Yields function(item, *shared) for each item, in order. shared is sent to each worker only once."""
    iterator = iter(items)
    head = list(islice(iterator, 2))
    items = chain(head, iterator)
    if check_workers(workers) == 1 or len(head) < 2:  # a worker starts too slowly for one item
        for item in items:
            yield function(item, *shared)
        return
    # A fork would copy locks that threads hold (sentencepiece, torch).
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _receive, shared) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(_call, function, item))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _receive(*shared: Any) -> None:
    global _shared
    _shared = shared
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C


def _call(function: Callable[..., Result], item: Item) -> Result:
    return function(item, *_shared)
