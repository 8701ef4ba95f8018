"""The rivals of a case: tsm from Python and from C++, ONNX Runtime, torch, and the floor.

Each is first fed the case's chunk from zero states and compared with the reference, then timed while it
continues from its state. All run on one thread and are called from Python with buffers that are bound once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plugin.common.lazy import np
from .case import Case
from .graphs import Form, forms, source
from .saturation import saturates
from .turns import Loop, loop_of

LIMIT = {"float32": 1e-4, "bfloat16": 4e-2, "int8": 1e-1}
"""Largest difference of h from the reference that counts as rounding, relative to the largest |h|."""

TSM, CPP, FLOOR = "tsm", "tsm C++", "floor"
SCAN, UNROLLED, LSTM_OP = "ORT scan", "ORT unrolled", "ORT LSTM op"
EAGER, NN_LSTM = "torch eager", "torch nn.LSTM"
ORT = (SCAN, UNROLLED, LSTM_OP)
_ORT_NAME = {"scan": SCAN, "unrolled": UNROLLED, "lstm_op": LSTM_OP}


@dataclass(frozen=True)
class Rival:
    name: str
    dtype: str
    loop: Loop | None  # None: wrong on this processor, so not timed
    difference: float | None  # relative, from the reference; None: not compared


class Wrong(ArithmeticError):
    """The rival computes something other than the layer: its h differs by the relative amount `share`."""

    def __init__(self, message: str, share: float) -> None:
        super().__init__(message)
        self.share = share


def rivals(
    case: Case, dtypes: list[str], model_file: Path, graphs: Path | None, torch_too: bool = True
) -> Iterator[Rival]:
    """The rivals of the case in the given dtypes; raises Wrong if one differs from the reference.

    If ONNX Runtime's int8 saturates on this processor, that is not an error: the rival has no loop to time.
    """
    for dtype in dtypes:
        yield checked(case, TSM, dtype, *tsm_python(case, dtype, model_file))
        yield Rival(CPP, dtype, tsm_cpp(case, dtype, model_file), None)
        yield Rival(FLOOR, dtype, floor(case, dtype), None)
    # ONNX Runtime's CPU provider has no bfloat16, so bfloat16 is compared with its float32.
    wanted = {"int8" if dtype == "int8" else "float32" for dtype in dtypes}
    for form in forms(case):
        if form.dtype in wanted:
            yield ort_rival(case, form, graphs)
    if torch_too and "float32" in dtypes:
        yield checked(case, EAGER, "float32", *torch_eager(case))
        yield nn_lstm(case)


def checked(
    case: Case, name: str, dtype: str, call: Callable[[], Any], h: Callable[[], np.ndarray]
) -> Rival:
    """The rival, after checking that its first call gives the reference's h."""
    call()
    share = difference(h(), case.expected)
    if not share <= LIMIT[dtype]:
        raise Wrong(
            f"{case}: h of {name} in {dtype} differs from the reference by {share:.3g} of its largest "
            f"value; accepted: {LIMIT[dtype]:g}",
            share,
        )
    return Rival(name, dtype, loop_of(call), share)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest |found - expected| relative to the largest |expected|; NaN if `found` contains a NaN."""
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


def tsm_python(
    case: Case, dtype: str, path: Path
) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    from ..runtime import Model

    model = Model.load(path, dtype=dtype, threads=1)
    streams = [model.create_stream() for _ in range(case.B)]
    chunks = [np.ascontiguousarray(row) for row in case.x]
    outs = [np.empty((case.T, 1), np.float32) for _ in streams]

    def h() -> np.ndarray:
        return np.stack([stream.state()["h"][0] for stream in streams])

    if case.B == 1:
        stream, chunk, out = streams[0], chunks[0], outs[0]
        return lambda: stream.feed(chunk, out=out), h
    return lambda: model.feed_many(streams, chunks, out=outs), h


def tsm_cpp(case: Case, dtype: str, path: Path) -> Loop:
    """The same calls in a C++ loop."""
    from ..runtime import _core

    loop: Loop = _core.FeedLoop(str(path), dtype, 1, case.B, case.T).run
    return loop


def floor(case: Case, dtype: str) -> Loop:
    """Reads W once per chunk and U once per step, just summing them up."""
    from ..runtime import _core

    loop: Loop = _core.ReadFloor(*case.weight_bytes(dtype), case.T).run
    return loop


def ort_rival(case: Case, form: Form, graphs: Path | None) -> Rival:
    name = _ORT_NAME[form.recurrence]
    try:
        return checked(case, name, form.dtype, *ort(case, form, graphs))
    except Wrong as error:
        if form.dtype == "int8" and saturates():
            return Rival(name, form.dtype, None, error.share)
        raise


def ort(
    case: Case, form: Form, graphs: Path | None
) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    """ONNX Runtime with bound buffers; two sets of states alternate from call to call."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        source(case, form, graphs), options, providers=["CPUExecutionProvider"]
    )

    def value(array: np.ndarray) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)

    names = [v.name.removesuffix("_in") for v in session.get_inputs() if v.name != "x"]
    state = [{n: value(np.zeros((case.B, case.H), np.float32)) for n in names} for _ in range(2)]
    x, y = value(case.x), value(np.zeros_like(case.x))
    bindings = []
    for before, after in ((0, 1), (1, 0)):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_ortvalue_output("y", y)
        for name in names:
            binding.bind_ortvalue_input(f"{name}_in", state[before][name])
            binding.bind_ortvalue_output(f"{name}_out", state[after][name])
        bindings.append(binding)
    run = session.run_with_iobinding

    def call() -> None:
        run(bindings[0])
        bindings.reverse()

    def h() -> np.ndarray:
        return state[1]["state_h_0"].numpy()

    return call, h


def torch_eager(case: Case) -> tuple[Callable[[], Any], Callable[[], np.ndarray]]:
    """The cell's formula in torch, operation by operation."""
    import torch

    layer, x = case.layer, torch.from_numpy(case.x)
    carried: dict[str, Any] = {"state": None}

    def call() -> None:
        with torch.inference_mode():
            _, carried["state"] = layer(x, carried["state"])

    return call, lambda: carried["state"]["h"].numpy()


def nn_lstm(case: Case) -> Rival:
    """torch.nn.LSTM of the same size: the same layer as `lstm`, a yardstick for other cells."""
    import torch

    module = torch.nn.LSTM(case.H, case.H, batch_first=True).eval()
    same = case.cell == "lstm"
    if same:
        mine = case.layer.state_dict()
        names = {"weight_ih_l0": "weight_x", "weight_hh_l0": "weight_h", "bias_ih_l0": "bias"}
        weights = {theirs: mine[ours] for theirs, ours in names.items()}
        module.load_state_dict({**weights, "bias_hh_l0": torch.zeros_like(mine["bias"])})
    x = torch.from_numpy(case.x)
    carried: dict[str, Any] = {"state": None}

    def call() -> None:
        with torch.inference_mode():
            _, carried["state"] = module(x, carried["state"])

    if same:
        return checked(case, NN_LSTM, "float32", call, lambda: carried["state"][0][0].numpy())
    call()
    return Rival(NN_LSTM, "float32", loop_of(call), None)
