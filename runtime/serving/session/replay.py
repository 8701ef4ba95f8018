"""The last inputs of a session, from which its state is rebuilt when the weights change.

Each step is packed as a float32 row: dt, then either the bits of the token's int32 id or the input's numbers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from ... import TsmError
from ..store.base import Row
from ..streams.engine import Engine
from ..streams.steps import Chunk
from ..transport.problems import Problem, of_core


def extend_tail(tail: bytes, fed: Chunk, dt: Any, keep: int) -> bytes:
    """The tail extended by these inputs, cut to the last `keep` steps."""
    inputs = fed.astype(np.int32).view(np.float32)[:, None] if fed.ndim == 1 else fed
    packed = np.empty((len(fed), 1 + inputs.shape[1]), np.float32)
    packed[:, 0] = 1.0 if dt is None else dt
    packed[:, 1:] = inputs
    before = np.frombuffer(tail, np.float32).reshape(-1, packed.shape[1])
    return np.concatenate([before, packed])[-keep:].tobytes()


async def rebuilt(engine: Engine, row: Row) -> bytes:
    """The state after the last inputs, computed with these weights. Its position counts only these inputs."""
    model = engine.model
    packed = np.frombuffer(row.tail, np.float32)
    width = 1 + (1 if model.takes_tokens else model.input_size)
    if packed.size == 0 or packed.size % width:
        raise Problem(
            409,
            f"the state is from other weights of model {row.model}, and there are no inputs to replay",
            position=row.position,
        )
    packed = packed.reshape(-1, width)
    inputs: Any = packed[:, 1:]
    if model.takes_tokens:
        inputs = np.ascontiguousarray(inputs[:, 0]).view(np.int32).astype(np.int64)
    dt = np.ascontiguousarray(packed[:, 0]) if model.takes_dt else None

    def fed() -> bytes:
        with model.create_stream() as stream:
            stream.feed(inputs, dt, last_only=True)
            return stream.save_state()

    try:
        return await asyncio.to_thread(fed)  # other requests go on meanwhile
    except TsmError as error:
        raise of_core(error) from error
