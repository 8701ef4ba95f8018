"""Runs a TorchScript or torch.export model on numpy arrays: a Runner for verify."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..common.runner import Array, State


class TorchRunner:
    """Calls model(x=, lengths=, state=, dt=) -> (logits, state), like a SequenceModel.

    complete: a function that fills in the arguments that the model requires.
    """

    def __init__(
        self,
        name: str,
        model: Callable[..., Any],
        chunk_size: int | None = None,
        complete: Callable[[dict[str, Any]], dict[str, Any]] = lambda given: given,
    ) -> None:
        self.name, self.chunk_size = name, chunk_size
        self._model, self._complete = model, complete

    def run(
        self,
        x: Array,
        state: State | None = None,
        dt: Array | None = None,
        lengths: Array | None = None,
    ) -> tuple[Array, State]:
        given: dict[str, Any] = {"x": _tensor(x), "lengths": _tensor(lengths), "dt": _tensor(dt)}
        if state is not None:
            given["state"] = [{k: _tensor(v) for k, v in layer.items()} for layer in state]
        arguments = {name: value for name, value in given.items() if value is not None}
        with torch.no_grad():
            logits, new = self._model(**self._complete(arguments))
        return _array(logits), [{name: _array(v) for name, v in layer.items()} for layer in new]


def _tensor(value: Array | None) -> torch.Tensor | None:
    return None if value is None else torch.from_numpy(np.ascontiguousarray(value))


def _array(value: torch.Tensor) -> Array:
    # A copy: the executor may reuse its output.
    array: Array = value.detach().cpu().numpy().copy()
    return array
