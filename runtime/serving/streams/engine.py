"""One model with its pool of streams; no other file calls the pool.

Streams that the pool does not hold come from the store. The pool needs no `spill` callback, because every state
goes to the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from ... import Model, PoolEvent, Stream, StreamPool, TsmError
from ...async_pool import AsyncPool
from ..transport.limits import Limits
from ..transport.off_loop import off_loop
from ..transport.problems import Problem, of_core
from .steps import Chunk, Step

LOOK = 0.001  # seconds between checks that a cancelled request has ended
FLAGS = {"full": ("queue", "hot"), "deadline": ("seconds",)}  # pool error -> limits that cause it
Emit = Callable[[list[int]], Awaitable[None]]


class Lost(Problem):
    """The pool dropped the stream during the step, so the result does not belong to this stream."""

    def __init__(self, limits: Limits) -> None:
        detail = f"the stream made room for others ({limits.flag('hot')})"
        super().__init__(503, detail, retry_after=1)


class Done(NamedTuple):
    """The stream after a step."""

    position: int
    blob: bytes
    event: Any  # tokens, logits, log_probs
    fed: Chunk  # everything that the stream read


def in_bounds(numbers: int, limits: Limits) -> None:
    if numbers > limits.numbers:
        flag = limits.flag("numbers")
        detail = f"the answer would have {numbers} numbers; accepted: {limits.numbers} ({flag})"
        raise Problem(413, detail)


class Engine:
    def __init__(self, name: str, model: Model, limits: Limits) -> None:
        self.name, self.model, self.limits = name, model, limits
        self.streams = StreamPool(model, max_queue=limits.queue, max_streams=limits.hot)
        self.loaded = time.monotonic()
        self.example: asyncio.Future[bytes] | None = None  # for the page, from the first request on

    @cached_property
    def pool(self) -> AsyncPool:
        """Created in the event loop that serves."""
        return AsyncPool(self.streams)

    def has(self, key: str) -> bool:
        return self.streams.has(key.encode())

    def put(self, key: str, blob: bytes) -> None:
        try:
            self.streams.put(key.encode(), blob)
        except TsmError as error:
            raise of_core(error) from error

    def save(self, key: str) -> bytes:
        """The state from which the stream's next step begins."""
        try:
            return self.streams.save(key.encode()) if self.has(key) else self.fresh()
        except TsmError as error:
            raise of_core(error) from error

    async def drop(self, key: str) -> None:
        """Drop the stream, once a cancelled request has ended; the store has its last good state."""
        while not self.streams.closed:
            try:
                self.streams.drop(key.encode())
                return
            except TsmError as error:
                if error.kind != "busy":
                    raise
            await asyncio.sleep(LOOK)

    def check(self, blob: bytes) -> int:
        """The position of a state, which must belong to this model."""
        try:
            with self.model.create_stream() as stream:
                stream.load_state(blob)
                return stream.position
        except TsmError as error:
            raise of_core(error) from error

    def fresh(self) -> bytes:
        """The state of a stream that has read nothing."""
        with self.model.create_stream() as stream:
            return stream.save_state()

    def memory(self, blob: bytes) -> dict[str, Any]:
        """The states of all layers as lists."""
        try:
            with self.model.create_stream() as stream:
                stream.load_state(blob)
                return memory_of(stream)
        except TsmError as error:
            raise of_core(error) from error

    async def run(
        self, key: str, step: Step, start: int, user: str, seconds: float, emit: Emit | None = None
    ) -> Done:
        """Do a step of the stream, which is at position `start`. If this fails, the caller must `drop` the
        stream."""
        try:
            return await self._run(key.encode(), step, start, user.encode(), seconds, emit)
        except TsmError as error:
            problem = of_core(error)
            flags = ", ".join(map(self.limits.flag, FLAGS.get(error.kind, ())))
            problem.detail += f" ({flags})" if flags else ""
            raise problem from error

    async def _run(
        self, key: bytes, step: Step, start: int, user: bytes, seconds: float, emit: Emit | None
    ) -> Done:
        late = time.monotonic() + seconds
        chunk, dt = await off_loop(step.size, self._inputs, step)
        common: dict[str, Any] = {"user": user, "timeout": late - time.monotonic(), "wait": False}
        if step.action == "generate":
            if isinstance(dt, np.ndarray):
                raise Problem(400, "dt is a list; accepted with generate: a number")
            dt = 1.0 if dt is None else dt
            if chunk is not None:
                await self.pool.feed(key, chunk, dt=dt if self.model.takes_dt else None, **common)
                common["timeout"] = late - time.monotonic()
            event = await self._generate(key, step, dt, emit, common)
        else:
            assert chunk is not None
            common["logits"] = step.logits or ("last" if step.top else None)
            common["log_probs"] = step.action == "score"
            event = await self.pool.feed(key, chunk, dt=dt, save=True, **common)
        tokens, position, blob = event.tokens, event.position, event.blob
        fed: Any = chunk
        if tokens is not None:
            fed = tokens if chunk is None else np.concatenate((chunk, tokens))
        if position != start + len(fed) or blob is None:
            raise Lost(self.limits)
        return Done(position, blob, event, fed)

    def _inputs(self, step: Step) -> tuple[Chunk | None, float | NDArray[np.float32] | None]:
        chunk = step.chunk(self.model, self.limits)
        steps = 0 if chunk is None else len(chunk)
        self._check_answer(step, steps)
        return chunk, step.intervals(steps)

    async def _generate(
        self, key: bytes, step: Step, dt: float, emit: Emit | None, common: dict[str, Any]
    ) -> PoolEvent:
        options: dict[str, Any] = {"seed": step.seed, "dt": dt, "stop": step.stops(self.model)}
        options |= {"temperature": step.temperature, "top_k": step.top_k, "top_p": step.top_p}
        generation = self.pool.generate(key, step.n, save=True, **options, **common)
        if emit is None:
            return await generation
        parts: Any = aiter(generation)
        async with aclosing(parts):  # if `emit` fails, the generation is cancelled
            async for tokens in parts:
                await emit(tokens.tolist())
        assert generation.event is not None
        return generation.event

    def _check_answer(self, step: Step, steps: int) -> None:
        names = self.model.targets if step.top else None
        if names:
            shown = f"{', '.join(names[:10])}{', ...' * (len(names) > 10)}"
            raise Problem(
                400,
                f"top = {step.top}, but the outputs of model {self.name} are numbers ({shown});"
                " accepted: logits, last or each, which returns them",
            )
        if step.logits == "each":
            in_bounds(steps * self.model.output_size, self.limits)

    async def close(self, drain: bool) -> None:
        """Close the pool; with `drain`, after the running requests have finished."""
        await self.pool.close(drain=drain)


def memory_of(stream: Stream, digits: int | None = None) -> dict[str, Any]:
    """The states of all layers as lists, rounded to these digits after the point."""
    states = stream.state()
    layers = [
        {"cell": layer.cell, **{name: _list(states[name][i], digits) for name in layer.states}}
        for i, layer in enumerate(stream.model.layers)
    ]
    return {"position": stream.position, "time": stream.time, "layers": layers}


def _list(values: NDArray[Any], digits: int | None) -> list[float]:
    rounded = values if digits is None else values.astype(np.float64).round(digits)
    return cast(list[float], rounded.tolist())
