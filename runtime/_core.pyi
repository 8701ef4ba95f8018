"""The compiled core on raw addresses (integers); contracts in cpp/src/kernels."""

from typing import TypedDict

class CellInfo(TypedDict):
    gates: int
    states: int
    vectors: int
    constants: int
    reads: int
    takes_dt: bool

class TsmError(ValueError): ...

__version__: str
cells: dict[str, CellInfo]
with_cuda: bool

def cuda_device_count() -> int: ...
def recurrence_forward(
    cell: str,
    dtype: str,
    constants: list[float],
    threads: int,
    B: int,
    T: int,
    H: int,
    /,
    *addresses: int,
) -> None: ...
def recurrence_backward(
    cell: str,
    dtype: str,
    constants: list[float],
    threads: int,
    B: int,
    T: int,
    H: int,
    /,
    *addresses: int,
) -> None: ...
def step_forward_cuda(
    cell: str, constants: list[float], B: int, H: int, /, *addresses: int
) -> None: ...
def step_backward_cuda(
    cell: str, constants: list[float], B: int, H: int, /, *addresses: int
) -> None: ...
