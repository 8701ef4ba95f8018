"""Times a training step of one layer on a GPU: tsm's cells beside cuDNN's LSTM and the eager cell, in one run.

A step is forward and backward with the input projection, and the gradients of x and of all weights. Each layer
is timed in replays of a CUDA graph, which exclude the host, and in back-to-back calls, which include it. Times
are medians, in microseconds per time step. tsm's layers are first compared with the reference, on fewer steps.

Each shape has two floors: the time of its matrix products at the rate of a large one, and the time of its
memory traffic at the rate of a large copy. Both rates are measured here. A step also waits for h, and in
backward for dz, to reach every multiprocessor; neither floor includes that.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..plugin.cells import get_cell
from ..plugin.layers import Recurrent
from ..plugin.layers.choose import choose
from ..plugin.layers.core import cell_info
from .eager_cuda import COMPILED_STEPS, STEPS, Compiler, TooLong, eager
from .goals import Goal, over
from .machine import gpu_driver
from .results import aligned
from .train_cpu import LIMIT, Shape, difference, step

SHAPES: dict[str, Shape] = {
    "copy": (128, 220, 10, 128),
    "IMDB": (128, 400, 100, 154),
    "sMNIST": (100, 784, 1, 512),
    "char PTB": (128, 150, 128, 828),
    "word PTB": (20, 70, 1150, 1150),
    "word WT2": (80, 70, 1150, 1150),
}
RIVALS = ("cuDNN float32", "cuDNN tf32", "cuDNN bfloat16")
EAGER = "plstm"  # its eager cell is also a rival
RUNS = 11
LARGEST_GRAPH = 20_000  # launches


@dataclass(frozen=True)
class Row:
    """Times of one layer at one shape in microseconds per step; None if not measured."""

    shape: str
    layer: str
    graph_us: float | None
    queue_us: float | None
    host_us: float | None  # how long one forward and backward pass keeps the caller busy
    peak_mb: float | None
    note: str = ""

    @property
    def best_us(self) -> float | None:
        return min((us for us in (self.graph_us, self.queue_us) if us is not None), default=None)


def device_facts() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "driver": gpu_driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "torch": torch.__version__,
    }


def layers_of(shape: Shape, cells: list[str]) -> dict[str, tuple[nn.Module, torch.dtype]]:
    """name -> (layer, dtype of x), rivals first."""
    _, _, width, hidden = shape
    made: dict[str, tuple[nn.Module, torch.dtype]] = {}
    for name in RIVALS:
        dtype = torch.bfloat16 if name.endswith("bfloat16") else torch.float32
        lstm = nn.LSTM(width, hidden, batch_first=True).to("cuda", dtype)
        lstm.flatten_parameters()
        made[name] = (lstm, dtype)
    for cell in cells:
        for dtype in dtypes_of(cell):
            layer = Recurrent(cell, width, hidden, backend="fused").to("cuda", dtype)
            made[f"{cell} {str(dtype).removeprefix('torch.')}"] = (layer, dtype)
    return made


def dtypes_of(cell: str) -> tuple[torch.dtype, ...]:
    return (torch.bfloat16, torch.float32) if cell == "plstm" else (torch.bfloat16,)


def check(shape: Shape, cell: str, dtype: torch.dtype) -> float:
    """The largest difference from the reference; the run ends if it is more than rounding."""
    worst, where = compare(shape, cell, dtype)
    if not worst <= LIMIT[dtype]:
        raise SystemExit(
            f"{cell} {dtype} at {shape}: {where} differs by {worst:.3g} of its largest value"
        )
    return worst


def compare(shape: Shape, cell: str, dtype: torch.dtype) -> tuple[float, str]:
    """Returns (largest difference from the reference over eight steps, the tensor it is in)."""
    batch, steps, width, hidden = shape
    x = torch.randn(batch, min(steps, 8), width, device="cuda", dtype=dtype)
    weight = torch.randn(batch, min(steps, 8), hidden, device="cuda", dtype=dtype)
    found = []
    for backend in ("fused", "reference"):
        torch.manual_seed(0)
        layer = Recurrent(cell, width, hidden, backend=backend).to("cuda", dtype)
        found.append(step(layer, x.clone().requires_grad_(), weight))
    return difference(*found)


def fits_a_graph(name: str, dtype: torch.dtype, shape: Shape) -> bool:
    """Whether a layer's launches fit: the core needs at most 4 per time step, torch's loop about 40."""
    if name in RIVALS or shape[1] * 40 < LARGEST_GRAPH:
        return True
    return choose(get_cell(name.partition(" ")[0]), dtype, torch.device("cuda")).fused


def measure(
    name: str, shape: Shape, cells: list[str], compiler: Compiler, tell: Callable[[str], None]
) -> list[Row]:
    batch, steps, width, _ = shape
    rows = []
    for cell in cells:
        for dtype in dtypes_of(cell):
            tell(f"  {cell} {dtype}: fused = reference within {check(shape, cell, dtype):.1e}")
    for layer_name, (layer, dtype) in layers_of(shape, cells).items():
        torch.backends.cudnn.allow_tf32 = layer_name.endswith("tf32")
        x = torch.randn(batch, steps, width, device="cuda", dtype=dtype).requires_grad_()
        grad = torch.randn_like(layer(x)[0])
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        _run(layer, x, grad)
        torch.cuda.synchronize()
        peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        graph = None
        if fits_a_graph(layer_name, dtype, shape):
            graph = graph_us(layer, x, grad, layer_name in RIVALS)
        note = "" if graph or layer_name not in RIVALS else "torch cannot capture it"
        queue, host = queue_us(layer, x, grad)
        us = (graph and graph / steps, queue / steps)
        rows.append(Row(name, layer_name, *us, host, round(peak, 1), note))
    return rows + (_eager_rows(name, shape, compiler) if EAGER in cells else [])


def _eager_rows(name: str, shape: Shape, compiler: Compiler) -> list[Row]:
    """The eager cell over a few steps, and the compiled one over even fewer."""
    batch, steps, width, hidden = shape
    torch.backends.cuda.matmul.allow_tf32 = True
    rows = []
    for kind, most in (("eager", STEPS), ("compiled", COMPILED_STEPS)):
        few, called = min(steps, most), f"{EAGER} {kind} tf32"
        layer: Any = eager(EAGER, shape)
        x = torch.randn(batch, few, width, device="cuda").requires_grad_()
        try:
            run = compiler.compiled(layer, x) if kind == "compiled" else layer
        except TooLong:
            rows.append(Row(name, called, None, None, None, None, "not compiled in time"))
            continue
        grad = torch.randn(batch, few, hidden, device="cuda")
        graph = graph_us(run, x, grad, True)
        queue, host = queue_us(run, x, grad, calls=1)
        note = f"{few} steps"
        rows.append(
            Row(name, called, graph and graph / few, queue / few, host * steps / few, None, note)
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    return rows


def _run(layer: nn.Module, x: Tensor, grad: Tensor) -> None:
    x.grad = None
    layer.zero_grad(set_to_none=True)
    layer(x)[0].backward(grad)


def graph_us(layer: nn.Module, x: Tensor, grad: Tensor, rival: bool) -> float | None:
    """Time of a replay; None if torch cannot capture the rival in a graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _run(layer, x, grad)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            _run(layer, x, grad)
    except RuntimeError as error:
        if not rival or isinstance(error, torch.OutOfMemoryError):
            raise
        torch.cuda.synchronize()
        return None
    return median_us(graph.replay)


def median_us(call: Callable[[], object], runs: int = RUNS) -> float:
    taken = []
    for run in range(runs + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        if run >= 2:
            taken.append(start.elapsed_time(end) * 1e3)
    return statistics.median(taken)


def queue_us(layer: nn.Module, x: Tensor, grad: Tensor, calls: int = 4) -> tuple[float, float]:
    """Returns (device time, host time) per call, averaged over several back-to-back calls."""

    def several() -> None:
        for _ in range(calls):
            _run(layer, x, grad)

    device = median_us(several) / calls
    torch.cuda.synchronize()
    start = time.perf_counter()
    several()
    host = (time.perf_counter() - start) / calls * 1e6
    torch.cuda.synchronize()
    return device, host


def rates() -> tuple[float, float]:
    """Returns (bfloat16 operations per microsecond in a large matrix product, bytes per microsecond in a large
    copy)."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.empty_like(a)
    product = 2 * 8192**3 / median_us(lambda: torch.mm(a, a, out=b))
    data = torch.empty(2**28, device="cuda", dtype=torch.float32)
    other = torch.empty_like(data)
    copy = 2 * data.numel() * 4 / median_us(lambda: other.copy_(data))  # read and written
    return product, copy


def floors(
    shape: Shape, gates: int, states_read: int, rate: tuple[float, float]
) -> tuple[float, float]:
    """Microseconds per step that (matrix products, memory traffic) take at these rates, forward and
    backward."""
    batch, _, width, hidden = shape
    operations = 3 * 2 * batch * gates * hidden * (width + hidden)
    # zx, z and dz are written and read; then y and dy, the float32 states that backward reads, x and dx.
    numbers = 6 * gates * hidden + 3 * hidden + 2 * 2 * states_read * hidden + 3 * width
    return operations / rate[0], batch * numbers * 2 / rate[1]


def goals(rows: list[Row]) -> list[Goal]:
    """Compares plstm with cuDNN's best time, plstm in float32 with cuDNN's float32, and other cells with
    plstm's time scaled by their number of gates."""
    found = {(row.shape, row.layer): us for row in rows if (us := row.best_us) is not None}
    made = []
    for shape in dict.fromkeys(row.shape for row in rows):
        best = min(found[shape, rival] for rival in RIVALS)
        ours = found.get((shape, "plstm bfloat16"))
        made.append(Goal(f"plstm {shape}: time over cuDNN's best", 0.4, False, over(ours, best)))
        exact = over(found.get((shape, "plstm float32")), found[shape, "cuDNN float32"])
        made.append(Goal(f"plstm {shape} float32: time over cuDNN float32", 1.0, False, exact))
        for (at, layer), taken in found.items():
            cell = layer.partition(" ")[0]
            if at == shape and layer.endswith("bfloat16") and cell not in ("cuDNN", "plstm"):
                share = over(taken, None if ours is None else ours * len(get_cell(cell).gates) / 3)
                made.append(
                    Goal(f"{cell} {shape}: over plstm's time x gates / 3", 1.3, False, share)
                )
    return made


def table(rows: list[Row], rate: tuple[float, float]) -> str:
    """The column `floor` is the longer of the two floors as a share of the time."""
    head = ["shape", "layer", "graph", "back to back", "host us", "peak MB", "/ cuDNN", "floors"]
    lines = [[*head, "floor", ""]]
    for i, row in enumerate(rows):
        us = {r.layer: r.best_us for r in rows if r.shape == row.shape}
        best = min(u for layer, u in us.items() if layer in RIVALS and u is not None)
        two = floors_of(row, rate)
        lines.append(
            [
                row.shape if not i or row.shape != rows[i - 1].shape else "",
                row.layer,
                _shown(row.graph_us, ".2f"),
                _shown(row.queue_us, ".2f"),
                _shown(row.host_us, ",.0f"),
                _shown(row.peak_mb, ",.0f"),
                _shown(over(row.best_us, best), ".2f"),
                f"{two[0]:.2f} + {two[1]:.2f}",
                _shown(over(max(two), row.best_us), ".1%"),
                row.note,
            ]
        )
    return aligned(lines, left=(0, 1, 9))


def floors_of(row: Row, rate: tuple[float, float]) -> tuple[float, float]:
    """Floors of a row's shape with its cell's gates and states, all in bfloat16."""
    name = row.layer.partition(" ")[0]
    info = cell_info("lstm" if name == "cuDNN" else name)
    return floors(SHAPES[row.shape], info["gates"], int(info["reads"]).bit_count(), rate)


def _shown(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)
