"""Work that grows with a request, beside the event loop: other requests are answered meanwhile.

It runs on one thread, so that the loop competes for the GIL with one at most. Python changes threads every
half a millisecond (SWITCH in server.py), but not within a call into compiled code: large values are therefore
written in many short calls.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
LARGE = 8_192  # characters or numbers; less takes about 2 ms, and is done at once
THREAD = ThreadPoolExecutor(1, "tsm-large")
ENCODER, SORTED = json.JSONEncoder(), json.JSONEncoder(sort_keys=True)


async def off_loop(size: int, function: Callable[..., T], *arguments: Any) -> T:
    """function(*arguments), on the thread if it handles `size` characters or numbers, more than LARGE."""
    if size <= LARGE:
        return function(*arguments)
    return await asyncio.get_running_loop().run_in_executor(THREAD, function, *arguments)


def parts_of(value: Any, encoder: json.JSONEncoder = ENCODER) -> Iterator[str]:
    """The text of json.dumps(value) in short parts, by Python's own encoder: the compiled one would hold the
    GIL until it has written everything."""
    return iter(encoder.iterencode(value))


def written(value: Any) -> bytes:
    return "".join(parts_of(value)).encode()
