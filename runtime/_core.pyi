"""The compiled core: streams on numpy arrays, training on raw addresses (contracts in cpp/src)."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Buffer

class CellInfo(TypedDict):
    gates: int
    states: int
    vectors: int
    constants: int
    reads: int
    takes_dt: bool
    hash: int

class TsmError(ValueError):
    kind: Literal[
        "invalid argument",
        "bad file",
        "bad state",
        "busy",
        "out of memory",
        "internal",
        "cancelled",
        "full",
        "deadline",
        "closed",
    ]
    chunk: int | None

__version__: str
cells: dict[str, CellInfo]
with_cuda: bool

def isa_levels() -> list[str]: ...
def active_level() -> str: ...

# ---- streaming

class Cancel:
    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...

@final
class Layer:
    @property
    def cell(self) -> str: ...
    @property
    def input_size(self) -> int: ...
    @property
    def hidden_size(self) -> int: ...
    @property
    def states(self) -> dict[str, int]: ...
    @property
    def interpreted(self) -> bool: ...

@final
class Model:
    @staticmethod
    def load(
        path: str | PathLike[str],
        device: str = "cpu",
        dtype: str = "float32",
        threads: int = 1,
    ) -> Model: ...
    def __enter__(self) -> Model: ...
    def __exit__(self, *error: object) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def create_stream(self) -> Stream: ...
    @overload
    def feed_many(
        self,
        streams: Sequence[Stream],
        chunks: Sequence[ArrayLike],
        dts: Sequence[ArrayLike | None] | None = None,
        last_only: bool | Sequence[bool] = False,
        out: Sequence[NDArray[np.float32] | None] | None = None,
        *,
        log_probs: bool | Sequence[bool] = False,
        errors: Literal["raise"] = "raise",
        cancel: Cancel | None = None,
    ) -> list[NDArray[np.float32]]: ...
    @overload
    def feed_many(
        self,
        streams: Sequence[Stream],
        chunks: Sequence[ArrayLike],
        dts: Sequence[ArrayLike | None] | None = None,
        last_only: bool | Sequence[bool] = False,
        out: Sequence[NDArray[np.float32] | None] | None = None,
        *,
        log_probs: bool | Sequence[bool] = False,
        errors: Literal["return"],
        cancel: Cancel | None = None,
    ) -> list[NDArray[np.float32] | TsmError]: ...
    @overload
    def generate_many(
        self,
        streams: Sequence[Stream],
        n: int | Sequence[int],
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        seed: int | Sequence[int] = 0,
        dt: float | Sequence[float] = 1.0,
        *,
        errors: Literal["raise"] = "raise",
        cancel: Cancel | None = None,
    ) -> list[NDArray[np.int64]]: ...
    @overload
    def generate_many(
        self,
        streams: Sequence[Stream],
        n: int | Sequence[int],
        temperature: float | Sequence[float] = 1.0,
        top_k: int | Sequence[int] = 0,
        top_p: float | Sequence[float] = 1.0,
        seed: int | Sequence[int] = 0,
        dt: float | Sequence[float] = 1.0,
        *,
        errors: Literal["return"],
        cancel: Cancel | None = None,
    ) -> list[NDArray[np.int64] | TsmError]: ...
    @property
    def family(self) -> Literal["lm", "classifier", "tagger"]: ...
    @property
    def takes_tokens(self) -> bool: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def input_size(self) -> int: ...
    @property
    def output_size(self) -> int: ...
    @property
    def labels(self) -> tuple[str, ...] | None: ...
    @property
    def targets(self) -> tuple[str, ...] | None: ...
    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def takes_dt(self) -> bool: ...
    @property
    def shortest_dt(self) -> float: ...
    @property
    def layers(self) -> list[Layer]: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def device(self) -> Literal["cpu", "cuda"]: ...
    @property
    def dtype(self) -> Literal["float32", "bfloat16", "int8"]: ...
    @property
    def threads(self) -> int: ...
    @property
    def level(self) -> str: ...
    @property
    def stream_bytes(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def config(self) -> dict[str, Any]: ...
    def asset(self, name: str) -> bytes | None: ...
    @property
    def path(self) -> str: ...
    @property
    def checksum(self) -> str: ...
    @property
    def tokenizer(
        self,
    ) -> Literal["word", "char", "char_ptb", "review", "sentencepiece"] | None: ...
    def encode(self, text: str) -> NDArray[np.int64]: ...
    def decode(self, tokens: ArrayLike) -> str: ...

@final
class Stream:
    def __enter__(self) -> Stream: ...
    def __exit__(self, *error: object) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def feed(
        self,
        x: ArrayLike,
        dt: ArrayLike | None = None,
        last_only: bool = False,
        out: NDArray[np.float32] | None = None,
        *,
        cancel: Cancel | None = None,
    ) -> NDArray[np.float32]: ...
    def score(
        self, tokens: ArrayLike, dt: ArrayLike | None = None, *, cancel: Cancel | None = None
    ) -> NDArray[np.float32]: ...
    def generate(
        self,
        n: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        dt: float = 1.0,
        *,
        cancel: Cancel | None = None,
    ) -> NDArray[np.int64]: ...
    def state(self) -> dict[str, list[NDArray[Any]]]: ...
    def save_state(self) -> bytes: ...
    def load_state(self, blob: Buffer) -> None: ...
    def fork(self) -> Stream: ...
    def reset(self) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def model(self) -> Model: ...

@final
class PoolEvent:
    @property
    def ticket(self) -> int: ...
    @property
    def kind(self) -> Literal["progress", "done"]: ...
    @property
    def error(self) -> TsmError | None: ...
    @property
    def position(self) -> int: ...
    @property
    def tokens(self) -> NDArray[np.int64] | None: ...
    @property
    def logits(self) -> NDArray[np.float32] | None: ...
    @property
    def log_probs(self) -> NDArray[np.float32] | None: ...
    @property
    def blob(self) -> bytes | None: ...

class PoolStats(TypedDict):
    requests: int
    refused: int
    finished: int
    failed: int
    cancelled: int
    deadline_misses: int
    fed_tokens: int
    generated_tokens: int
    queue: int
    events: int
    streams: int
    spilled: int
    dropped: int
    batches: int
    batch_sizes: list[int]

@final
class StreamPool:
    def __init__(
        self,
        model: Model,
        *,
        max_queue: int = 4096,
        max_streams: int = 65536,
        max_batch: int = 0,
        prefill_steps: int = 0,
        prefill_budget: int = 0,
        spill: Callable[[bytes, bytes, int], object] | None = None,
    ) -> None: ...
    def __enter__(self) -> StreamPool: ...
    def __exit__(self, *error: object) -> None: ...
    def put(self, key: bytes, blob: Buffer) -> None: ...
    def has(self, key: bytes) -> bool: ...
    def drop(self, key: bytes) -> bool: ...
    def fork(self, key: bytes, new_key: bytes) -> None: ...
    def reset(self, key: bytes) -> None: ...
    def save(self, key: bytes) -> bytes: ...
    def position(self, key: bytes) -> int: ...
    def feed(
        self,
        key: bytes,
        x: ArrayLike,
        dt: ArrayLike | None = None,
        logits: Literal["last", "each"] | None = None,
        log_probs: bool = False,
        save: bool = False,
        user: int | bytes = 0,
        priority: int = 0,
        timeout: float | None = None,
        expected_position: int | None = None,
        wake: bool = True,
    ) -> int: ...
    def generate(
        self,
        key: bytes,
        n: int,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        dt: float = 1.0,
        stop: Sequence[int] = (),
        progress: bool = False,
        save: bool = False,
        user: int | bytes = 0,
        priority: int = 0,
        timeout: float | None = None,
        expected_position: int | None = None,
        wake: bool = True,
    ) -> int: ...
    def wake(self, seconds: float = 0.0) -> bool: ...
    def cancel(self, ticket: int) -> bool: ...
    def wait_room(self, timeout: float | None = None) -> bool: ...
    def fileno(self) -> int: ...
    def take(self, max: int = 256) -> list[PoolEvent]: ...
    def stats(self) -> PoolStats: ...
    def close(self, drain: bool = True) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def model(self) -> Model: ...

# ---- benchmarks

class FeedLoop:
    def __init__(
        self,
        path: str,
        dtype: str,
        threads: int,
        streams: int,
        steps: int,
        device: str = "cpu",
        last_only: bool = False,
    ) -> None: ...
    def run(self, calls: int) -> float: ...
    def run_pool(self, chunks: int) -> float: ...
    def stream_bytes(self) -> int: ...

class ReadFloor:
    def __init__(self, input_bytes: int, recurrent_bytes: int, steps: int) -> None: ...
    def run(self, chunks: int) -> float: ...

# ---- training

class Memory:
    def __init__(self, bytes: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

def share_threads(library: str) -> bool: ...
def cuda_device_count() -> int: ...
def layer_forward(
    *,
    cell: str,
    dtype: str,
    constants: list[float],
    threads: int,
    batch: int,
    steps: int,
    inputs: int,
    hidden: int,
    full_precision_x: bool,
    full_precision_weights: bool,
    x: int,
    weight_x: int,
    bias: int,
    weight_h: int,
    state: list[int],
    vectors: int,
    dt: int,
    lengths: int,
    y: int,
    last: list[int],
    saved: int,
) -> None: ...
def layer_backward(
    *,
    cell: str,
    dtype: str,
    constants: list[float],
    threads: int,
    batch: int,
    steps: int,
    inputs: int,
    hidden: int,
    full_precision_x: bool,
    full_precision_weights: bool,
    x: int,
    weight_x: int,
    weight_h: int,
    h: int,
    vectors: int,
    dt: int,
    lengths: int,
    y: int,
    saved: int,
    overwrite_saved: bool,
    grad_y: int,
    grad_last: list[int],
    grad_x: int,
    grad_weight_x: int,
    grad_bias: int,
    grad_weight_h: int,
    grad_state: int,
    grad_vectors: int,
) -> None: ...
def recurrence_cuda_plan(
    *, cell: str, dtype: str, device: int, batch: int, hidden: int, backward: bool
) -> tuple[str, float]: ...
def recurrence_cuda_path(*, device: int) -> str: ...
def recurrence_cuda_pretend(*, like: str) -> None: ...
def recurrence_cuda_take_plan(
    *, cell: str, dtype: str, device: int, batch: int, hidden: int, backward: bool, rank: int
) -> str: ...
def cross_entropy_cuda(
    *,
    dtype: str,
    device: int,
    rows: int,
    classes: int,
    logits: int,
    target: int,
    log_sums: int,
    grad: int,
    grad_step: int,
    out: int,
    stream: int,
) -> None: ...
def embedding_gradient_cuda(
    *,
    device: int,
    wide: bool,
    count: int,
    rows: int,
    width: int,
    tokens: int,
    grad: int,
    factors: int,
    out: int,
    stream: int,
) -> None: ...
def gradient_norm_cuda(
    *,
    device: int,
    gradients: list[int],
    lengths: list[int],
    count: int,
    limit: float,
    blocks: int,
    out: int,
    stream: int,
) -> None: ...
def descend_cuda(
    *,
    device: int,
    weights: list[int],
    gradients: list[int],
    averages: list[int],
    lengths: list[int],
    factor: int,
    rate: float,
    decay: float,
    share: float,
    stream: int,
) -> None: ...
def regulariser_gradients_cuda(
    *,
    dtype: str,
    device: int,
    count: int,
    ar: tuple[int, tuple[int, int], tuple[int, int, int], float, int] | None,
    tar: tuple[int, tuple[int, int], tuple[int, int, int], float, int] | None,
    stream: int,
) -> None: ...
def has_products() -> bool: ...
def plan_version() -> int: ...
def cuda_replay_from(*, launches: int) -> None: ...
def cuda_replays() -> tuple[int, int]: ...

class Launches:
    def __init__(self, *, device: int) -> None: ...
    def copies(self, copies: Sequence[tuple[object, ...]], /) -> None: ...
    def link_vectors(
        self,
        *,
        values: tuple[int, int],
        raw: Sequence[tuple[tuple[int, int], bool, int, str]],
        units: int,
        pitch: int,
    ) -> None: ...
    def vector_gradients(
        self,
        *,
        by_row: tuple[int, int],
        values: tuple[int, int],
        of_raw: tuple[int, int],
        links: Sequence[str],
        rows: int,
        units: int,
        pitch: int,
    ) -> None: ...
    def product(
        self,
        *,
        x: tuple[int, int] | None,
        w: tuple[int, int] | None,
        out: tuple[int, int] | None,
        workspace: tuple[int, int],
        sizes: tuple[int, int, int],
        row_steps: tuple[int, int, int],
        x_turned: bool,
        w_turned: bool,
        dtype: str,
        tf32: bool,
    ) -> int: ...
    def recurrence(
        self,
        *,
        cell: str,
        dtype: str,
        constants: list[float],
        shape: tuple[int, int, int],
        pitch: int,
        y_step: int,
        tf32: bool,
        backward: bool,
        arrays: dict[str, tuple[int, int] | None],
    ) -> int: ...
    def run(self, addresses: tuple[int, ...], stream: int, /) -> None: ...

class Nru:
    @property
    def workspace(self) -> int: ...
    def __init__(
        self,
        *,
        device: int,
        dtype: str,
        shape: tuple[int, int, int, int, int, int],
        tf32: bool,
        backward: bool,
    ) -> None: ...
    def run(self, addresses: list[int], stream: int, /) -> None: ...
