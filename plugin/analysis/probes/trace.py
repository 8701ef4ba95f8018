"""The states of a layer after every step, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .layer_calls import LayerCall
from .numpy_layer import NumpyLayer, array


def trace(call: LayerCall, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Each of the states `names` as [B,T,width]. After the end of a row the cell continues over the padding."""
    run = NumpyLayer(call.layer)
    batch, steps = call.x.shape[:2]
    state = run.zero_state(batch)
    if call.state is not None:
        state = {name: array(value) for name, value in call.state.items()}
    zx = run.project(array(call.x))
    times = None if call.dt is None else array(call.dt)
    found = {name: np.empty((batch, steps, call.layer.widths[name])) for name in names}
    for t in range(steps):
        state = run.advance(zx[:, t], state, 1.0 if times is None else times[:, t, None])
        for name in names:
            found[name][:, t] = state[name]
    return found
