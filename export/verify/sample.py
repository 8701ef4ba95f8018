"""What a model is scored on if no data is given: text that a language model generates, or random inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..common.runner import Array, State
from .data import Data, Inputs, Text, log_softmax

if TYPE_CHECKING:
    from .checks import Subject

ROWS, STEPS = 8, 256
CHUNK = 64
SEED = 11


def sample(subject: Subject, unit: int = 1) -> Data:
    """`unit`: the steps of a call must be a multiple of it."""
    rng = np.random.default_rng(SEED)
    chunk = -(-CHUNK // unit) * unit
    if subject.model.name == "lm":
        steps = -(-STEPS // chunk) * chunk
        tokens = generated(subject, rng, ROWS, steps + 1)
        return Text(tokens, f"{ROWS * steps:,} tokens that it generated", chunk)
    batches = [subject.x(rng, ROWS, chunk) for _ in range(STEPS // CHUNK)]
    return Inputs(batches, f"{len(batches) * ROWS} random sequences of {chunk} steps")


def generated(subject: Subject, rng: np.random.Generator, rows: int, steps: int) -> Array:
    """Tokens [rows, steps] sampled from the model, starting from a random token."""
    token = subject.x(rng, rows, 1)
    found = [token]
    state: State | None = None
    for _ in range(steps - 1):
        logits, state = subject.reference.run(token, state)
        total = np.exp(log_softmax(logits[:, -1])).cumsum(axis=-1)
        drawn = (total < rng.uniform(size=(rows, 1)) * total[:, -1:]).sum(axis=-1)
        token = np.minimum(drawn, logits.shape[-1] - 1)[:, None]
        found.append(token)
    return np.concatenate(found, axis=1)
