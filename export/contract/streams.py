"""A cell in the C++ runtime: a `.tsm` file, which holds the program of a cell that is not compiled in."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...plugin.archs import build_model
from ...plugin.cells import Cell
from ...plugin.models import SequenceModel
from ..tsm.package import package
from .samples import Array
from .tolerances import Violation, check_close

B, T = 4, 23
DTYPES = ("float32", "bfloat16", "int8")
KINDS: dict[str, tuple[str, dict[str, int]]] = {
    "lm tokens": ("lm", dict(vocab_size=13, decoder_embed_dim=6)),
    "lm one-hot": ("lm", dict(vocab_size=13, decoder_embed_dim=0)),
    "classifier tokens": ("classifier", dict(vocab_size=13, num_classes=3, decoder_embed_dim=6)),
    "tagger values": ("tagger", dict(input_size=5, num_classes=4)),
    "tagger one-hot": ("tagger", dict(vocab_size=13, num_classes=4, decoder_embed_dim=0)),
}
SPLITS = 10
"""Random splits of every stream into chunks."""
LONG = 10_000
"""Steps of a long stream."""
PARTS = 20
UNITS = 4
DRIFT = 2e-4
"""Largest |float32 - float64| / max(1, |float64|) of any state. A state that keeps a share q per step
accumulates the rounding of about 1 / (1 - q) steps; for the slowest unit here that is about 3,000."""


class StreamedModel:
    """A model, its file, and inputs for B streams of T steps."""

    def __init__(
        self, cell: type[Cell], kind: str, folder: Path, dtype: str = "float32", **more: Any
    ) -> None:
        family, sizes = KINDS[kind]
        torch.manual_seed(3)
        self.torch = build_model(
            f"lstm_{family}",
            cell=cell.name,
            decoder_hidden_size=20,
            decoder_layers=2,
            **{**sizes, **more},
        ).eval()
        self.path = folder / "model.tsm"
        self.report = package(self.torch, self.path, dtype)
        generator = torch.Generator().manual_seed(5)
        if "vocab_size" in sizes:
            self.x = torch.randint(0, 13, (B, T), generator=generator)
        else:
            self.x = torch.randn(B, T, 5, generator=generator)
        self.dt = torch.rand(B, T, generator=generator) * 2 + 0.1 if cell.takes_dt else None

    def expected(self) -> tuple[Array, list[dict[str, Array]]]:
        """Logits of every step in float64, and the last states."""
        model = self.torch.double()
        x = self.x if self.x.dtype == torch.int64 else self.x.double()
        dt = None if self.dt is None else self.dt.double()
        with torch.no_grad():
            features = model.features(x, dt=dt)
            logits = model.head(features.raw)
        states = [{n: s.numpy() for n, s in layer.items()} for layer in features.state]
        return logits.numpy(), states

    def chunk(self, row: int, start: int = 0, end: int = T) -> tuple[Array, Array | None]:
        x = self.x[row, start:end].numpy()
        return x, None if self.dt is None else self.dt[row, start:end].numpy()


def run_alone(model: StreamedModel, runtime: Any) -> tuple[Array, list[Any]]:
    """Logits and streams of the model in the runtime, each stream alone and in one chunk."""
    streams = [runtime.create_stream() for _ in range(B)]
    logits = [stream.feed(*model.chunk(row)) for row, stream in enumerate(streams)]
    return np.stack(logits), streams


def stream(cell: type[Cell]) -> str:
    """A model of every family and kind of input gives the logits and states of the model in torch."""
    from tsm.runtime import Model

    worst, how = 0.0, set()
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            model = StreamedModel(cell, kind, Path(folder))
            runtime = Model.load(model.path)
            logits, streams = run_alone(model, runtime)
            how |= {
                "as a program of the file" if layer.interpreted else "compiled"
                for layer in runtime.layers
            }
        expected, states = model.expected()
        worst = max(worst, check_close(logits, expected, "stream", "float32", f"logits of {kind}"))
        for row, one in enumerate(streams):
            if one.position != T:
                raise Violation(f"{kind}: a stream is at {one.position} after {T} steps")
            values = one.state()
            for number, layer in enumerate(states):
                for name, value in layer.items():
                    what = f"{name} of layer {number}, stream {row} of {kind}"
                    got = values[name][number]
                    worst = max(worst, check_close(got, value[row], "stream", "float32", what))
    return f"{len(KINDS)} models differ from torch by {worst:.2g} ({', '.join(sorted(how))})"


def stream_chunks(cell: type[Cell]) -> str:
    """With weights of every type the logits are those of the model in torch, and streams that are cut into
    chunks at different places and fed together give the bits of one pass."""
    from tsm.runtime import Model

    rng = np.random.default_rng(8)
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            model = StreamedModel(cell, "lm tokens", Path(folder))
            runtime = Model.load(model.path, dtype=dtype)
            whole, ends = run_alone(model, runtime)
            check_close(whole, model.expected()[0], "stream", dtype, f"logits with {dtype} weights")
            scores = [runtime.create_stream().score(*model.chunk(row)) for row in range(B)]
            for _ in range(SPLITS):
                cuts = np.sort(rng.integers(0, T + 1, (B, int(rng.integers(5)))))
                _check_cuts(model, runtime, cuts.tolist(), whole, ends, scores, dtype)
    return f"the same bits in {SPLITS} ragged splits each with {', '.join(DTYPES)} weights"


def _check_cuts(
    model: StreamedModel,
    runtime: Any,
    cuts: list[list[int]],
    whole: Array,
    ends: list[Any],
    scores: list[Array],
    dtype: str,
) -> None:
    streams = [runtime.create_stream() for _ in range(B)]
    bounds = [[0, *row, T] for row in cuts]
    pieces: list[list[Array]] = [[] for _ in range(B)]
    for number in range(len(bounds[0]) - 1):
        chunks = [model.chunk(r, *bounds[r][number : number + 2]) for r in range(B)]
        dts = None if model.dt is None else [dt for _, dt in chunks]
        for row, logits in enumerate(runtime.feed_many(streams, [x for x, _ in chunks], dts)):
            pieces[row].append(logits)
    for row, (one, end) in enumerate(zip(streams, ends, strict=True)):
        scored = runtime.create_stream()
        spans = zip(bounds[row], bounds[row][1:], strict=False)
        parts = [scored.score(*model.chunk(row, *span)) for span in spans]
        for what, same in (
            ("logits", np.array_equal(np.concatenate(pieces[row]), whole[row])),
            ("state", one.save_state() == end.save_state()),
            ("scores", np.array_equal(np.concatenate(parts), scores[row])),
        ):
            if not same:
                raise Violation(
                    f"{what} of stream {row} cut at {cuts[row]} have other bits ({dtype})"
                )


def long_stream(
    cell: type[Cell], steps: int = LONG, progress: Callable[[int], Any] = lambda done: None
) -> str:
    """The float32 states of a long stream stay as close to float64 as they were at its beginning, also those of
    units that forget slowly."""
    from tsm.runtime import Model

    torch.manual_seed(3)
    model = build_model(
        "lstm_tagger", cell=cell.name, input_size=1, num_classes=1, decoder_hidden_size=UNITS
    ).eval()
    with torch.no_grad():
        if model.layers[0].weight_h is not None:
            model.layers[0].weight_h.mul_(0.5)
        model.layers[0].bias.add_(fast_to_slow(cell).flatten())
    with tempfile.TemporaryDirectory() as folder:
        package(model, Path(folder) / "model.tsm")
        fed = Model.load(Path(folder) / "model.tsm").create_stream()
        size = steps // PARTS
        errors = []
        for error in _errors(cell, model.double(), fed, size):
            errors.append(error)
            progress(size)
        if fed.position != size * PARTS:
            raise Violation(f"the stream is at {fed.position} after {size * PARTS} steps")
    return stays_flat(errors)


def _errors(cell: type[Cell], model: SequenceModel, fed: Any, size: int) -> Iterator[float]:
    """Of the states of the stream against those of the model in float64, after every `size` steps."""
    rng = np.random.default_rng(1)
    state = None
    for _ in range(PARTS):
        x = rng.normal(size=(size, 1)).astype(np.float32)
        dt = rng.uniform(0.1, 2, size=size).astype(np.float32) if cell.takes_dt else None
        fed.feed(x, dt, last_only=True)
        exact_dt = None if dt is None else torch.from_numpy(dt).double()[None]
        with torch.no_grad():
            exact = torch.from_numpy(x).double()[None]
            state = model.features(exact, state=state, dt=exact_dt).state
        (last,), values = state, fed.state()
        yield max(relative_error(values[n][0], last[n][0].numpy()) for n in last)


def fast_to_slow(cell: type[Cell]) -> Tensor:
    """An offset for z [G, UNITS] with which each unit forgets more slowly than the one before it, through its
    forget, update or reset gate."""
    offset = torch.zeros(len(cell.gates), UNITS)
    for gate, sign, longest in (("f", 1, 4), ("u", 1, 4), ("r", -1, 8)):
        if gate in cell.gates and (bias := cell.gate_bias(gate)):
            logits = sign * torch.linspace(0, longest, UNITS)
            offset[cell.gates.index(gate)] = torch.tensor([bias(x) for x in logits.tolist()])
            break
    return offset


def relative_error(value: Array, exact: Array) -> float:
    return float((np.abs(value - exact) / np.maximum(1, np.abs(exact))).max())


def stays_flat(errors: list[float]) -> str:
    """Compares the last quarter of the errors with the first; raises Violation if they have grown."""
    quarter = len(errors) // 4
    early, late = max(errors[:quarter]), max(errors[-quarter:])
    if not late < DRIFT:
        raise Violation(f"error {late:.2e} in the last quarter, allowed {DRIFT:g}")
    if not late < 10 * early + 1e-6:
        raise Violation(
            f"the error grew from {early:.2e} in the first quarter to {late:.2e} in the last"
        )
    return f"error {early:.1e} in the first quarter, {late:.1e} in the last"
