"""Calls of every kind, each of which would take minutes. This module does not need torch, because it is also
used in separate processes."""

from __future__ import annotations

import numpy as np

LONG = 5_000_000
CALLS = {
    "feed": lambda model, s, **how: s.feed(np.zeros(LONG, np.uint16), last_only=True, **how),
    "score": lambda model, s, **how: s.score(np.zeros(LONG, np.uint16), **how),
    "generate": lambda model, s, **how: s.generate(LONG, **how),
    "feed_many": lambda model, s, **how: model.feed_many(
        [s, model.create_stream()], [np.zeros(LONG, np.uint16), [1]], last_only=True, **how
    ),
    "feed_many, errors returned": lambda model, s, **how: model.feed_many(
        [s, model.create_stream()],
        [np.zeros(LONG, np.uint16), [-1]],
        last_only=True,
        errors="return",
        **how,
    ),
    "generate_many": lambda model, s, **how: model.generate_many(
        [s, model.create_stream()], [LONG, 3], seed=[1, 2], **how
    ),
}
