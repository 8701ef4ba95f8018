"""Uses of undocumented names of torch, and peculiarities of autocast.

All of them are here, each with a test (tests/unit/layers/test_torch_private.py), so that a new version of
torch can break only this file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

F = TypeVar("F", bound=Callable[..., Any])
_PLAIN = frozenset({Tensor, torch.nn.Parameter})


def constant_for_compilers(function: F) -> F:
    """Does what torch.compiler.assume_constant_result does, without importing the compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def has_tangent(tensors: Iterable[Tensor]) -> bool:
    """Whether forward-mode differentiation is active for one of the tensors."""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(t).tangent is not None for t in tensors)


def is_transformed(tensors: Iterable[Tensor]) -> bool:
    """Whether a transform of torch.func (grad, vjp, jvp, jacrev, vmap) wraps one of the tensors."""
    return any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors))


def is_traced(tensors: Iterable[Tensor]) -> bool:
    """Whether operators are traced: by a compiler, an exporter, a dispatch mode or a subclass of Tensor."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    return bool(torch._C._get_tracing_state()) or not _PLAIN.issuperset(map(type, tensors))


@constant_for_compilers
def in_onnx_export() -> bool:
    """torch.onnx.is_in_onnx_export(), for which compilers would put False."""
    return torch.onnx.is_in_onnx_export()


def is_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether a call may go past torch's operators: it is neither traced nor transformed, nor is any tangent
    given."""
    return not (is_traced(tensors) or is_transformed(tensors) or has_tangent(tensors))


def apply_function(function: type[torch.autograd.Function], *inputs: Any) -> Any:
    """function.apply(*inputs) without the steps that only transforms of torch.func need. They cost as much as
    an operator."""
    return super(torch.autograd.Function, function).apply(*inputs)  # type: ignore[misc]


def graph_is_retained() -> bool:
    """Inside a backward pass: whether another one may follow (retain_graph=True)."""
    return bool(torch._C._autograd._get_current_graph_task_keep_graph())


def raw_stream(device: int) -> int:
    """The current stream of a GPU, as the CUDA runtime knows it. torch.cuda.current_stream makes an object."""
    found: int = torch._C._cuda_getCurrentRawStream(device)
    return found


def matmul_precision() -> str:
    """torch.backends.cuda.matmul.fp32_precision, without the four comparisons of that module."""
    found: str = torch._C._get_fp32_precision_getter("cuda", "matmul")
    return found


def borrowed(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that does not keep it. Memory of a CUDA graph stays reserved for its pool."""
    own = tensor.untyped_storage()
    storage = torch._C._construct_storage_from_data_pointer(
        own.data_ptr(), tensor.device, own.nbytes()
    )
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())


def autocast_enabled(device: torch.device) -> bool:
    """Whether autocast is enabled for that device. torch's own function raises an error for the meta device.

    torch.amp.is_autocast_available is not used, since torch 2.11 cannot compile calls to it.
    """
    kind = device.type
    return kind != "meta" and torch.is_autocast_enabled(kind)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Disables autocast inside the block."""
    if not autocast_enabled(device):  # torch's own context manager takes as long as a small layer
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def forget_stale_builtins(model: torch.nn.Module) -> None:
    """To be called before torch.jit.script: it knows functions by their id(), and forgets none that is gone.
    An attribute that has got such an id would be compiled as that function."""
    table = torch.jit._builtins._get_builtin_table()
    for module in model.modules():
        for value in vars(module).values():
            if not callable(value):
                table.pop(id(value), None)
