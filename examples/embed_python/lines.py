"""Many users, each with a stream, inside your own program: uses only tsm.runtime's AsyncPool and numpy.

    printf 'ann the old \nbob once upon \nann sailor \n' | python examples/embed_python/lines.py model.tsm

A line `USER TEXT` is read by the user's stream. The answer is `USER POSITION BITS`: how many tokens that stream
has read, and the bits per token of this text. Waiting lines of all users are computed together; lines of one
user are answered in order. stdin and stdout take the place of sockets. tsm-serve is the same with sockets,
limits, and states that outlive the process.
"""

from __future__ import annotations

import asyncio
import math
import sys

from tsm.runtime import AsyncPool, Model, StreamPool, TsmError


async def answer(pool: AsyncPool, model: Model, user: str, text: str) -> str:
    try:
        event = await pool.feed(user.encode(), model.encode(text), log_probs=True)
    except TsmError as error:
        return f"{user} error: {error}"
    assert event.log_probs is not None
    return f"{user} {event.position} {-event.log_probs.mean() / math.log(2):.3f}"


async def main(path: str) -> None:
    model = Model.load(path)
    last: dict[str, asyncio.Task[None]] = {}  # the last task of each user

    async def after(before: asyncio.Task[None] | None, user: str, text: str) -> None:
        if before is not None:
            await before
        print(await answer(pool, model, user, text), flush=True)

    async with AsyncPool(StreamPool(model)) as pool:
        while line := await asyncio.to_thread(sys.stdin.readline):
            user, _, text = line.rstrip("\n").partition(" ")
            last[user] = asyncio.create_task(after(last.get(user), user, text))
        await asyncio.gather(*last.values())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
