"""Is an exported module equal to the original? Compares ONNX Runtime with the module, also at other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .report import Check, Report, compare
from .tolerance import size_of

if TYPE_CHECKING:
    import onnx
    from torch import Tensor, nn
    from torch.export import ExportedProgram

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""args and kwargs of a call."""


class ModuleCheck(Check):
    """A check of a module, whose outputs may be anything."""

    others = "outputs"


def verify_module(
    report: Report,
    module: nn.Module,
    calls: Mapping[str, Inputs],
    model: onnx.ModelProto,
    tolerance: float,
) -> None:
    """Add each call, by its name, to the report."""
    import onnxruntime
    import torch

    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"]
    )
    names = [one.name for one in session.get_inputs()]
    outputs = [one.name for one in session.get_outputs()]
    for what, (args, kwargs) in calls.items():
        with torch.no_grad():
            expected = _tensors(module(*args, **kwargs))
        given = _tensors((args, kwargs))
        feeds = {n: v.detach().cpu().numpy() for n, v in zip(names, given, strict=True)}
        found = session.run(outputs, feeds)
        differences = {}
        for name, got, value in zip(outputs, found, expected, strict=True):
            wanted = value.detach().cpu().double().numpy()
            differences[name] = compare(got, wanted, tolerance * size_of(wanted))
        passed = all(one.passed for one in differences.values())
        sizes = ", ".join(str(tuple(v.shape)) for v in given)
        report.add(ModuleCheck("ONNX Runtime CPU", f"{what} {sizes}", passed, differences))


def enlarged(traced: ExportedProgram, example: Inputs) -> dict[str, Inputs]:
    """The example input with every dynamic size more than doubled and its values repeated; empty without
    dynamic sizes.

    Repeated values stay valid: tokens, time steps, lengths.
    """
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten(example)
    named = {node.name: node.meta["val"] for node in traced.graph.nodes if node.op == "placeholder"}
    shapes = [getattr(named[name], "shape", ()) for name in traced.graph_signature.user_inputs]
    if not any(_is_open(size) for shape in shapes for size in shape):
        return {}
    made = [_repeated(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    return {"larger sizes": pytree.tree_unflatten(made, structure)}


def _is_open(size: Any) -> bool:
    """Whether torch.export left a size dynamic: a fixed size prints as a number."""
    return not str(size).isdecimal()


def _repeated(value: Any, shape: Sequence[Any]) -> Any:
    import torch

    for axis, dim in enumerate(shape):
        if _is_open(dim):
            size = value.shape[axis]
            value = value.index_select(axis, torch.arange(2 * size + 1) % size)
    return value


def _tensors(value: Any) -> list[Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
