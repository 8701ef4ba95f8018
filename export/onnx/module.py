"""Exports your own torch.nn.Module that contains tsm layers to an ONNX file.

    module_to_onnx(module, (x, lengths), "module.onnx")

The module is traced by torch.export and translated by torch.onnx; a layer of tsm becomes a Scan of its cell's
formula (operator.py). States that the module takes and returns are inputs and outputs of the graph.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from ...plugin.common.atomic import write_bytes
from ...plugin.extras import how_to_install
from ..verify.module import enlarged, verify_module
from ..verify.report import Report
from ..verify.verify import VerifyError
from .file import LARGEST
from .model import OPSET
from .operator import Translation
from .recurrence import FORMS

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

ANY_LENGTH = tuple(form for form in FORMS if form != "unrolled")


def module_to_onnx(
    module: nn.Module,
    args: Any,
    path: str | Path,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    recurrence: str = "scan",
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    more_inputs: Sequence[Any] = (),
    tolerance: float = 1e-4,
) -> Report:
    """Write the module in eval mode to `path`, verified in ONNX Runtime; raises VerifyError if it differs.

    args, kwargs: example inputs; args is a tuple, or one tensor. dynamic_shapes: as torch.export takes them; by
    default every size that the module leaves open is dynamic (give examples with sizes above 1). recurrence:
    "scan" or "loop". input_names, output_names: of the graph. more_inputs: args of further calls to compare,
    beside the example and a larger one. tolerance: for each output, relative to its largest magnitude, or to 1
    if that is larger. If the comparison fails, an earlier file of that name is kept.
    """
    import torch

    _check_installed()
    target = Path(path)
    if recurrence not in ANY_LENGTH:
        raise ValueError(f"recurrence = {recurrence!r}; accepted: {', '.join(ANY_LENGTH)}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"folder {target.parent} does not exist")
    _check_size(module)
    plain = _plain(module)
    example = (_as_tuple(args), dict(kwargs or {}))
    traced = trace(plain, *example, dynamic_shapes)
    _warn_of_fixed_sizes(traced)
    calls = {"the example": example, **enlarged(traced, example)}
    calls |= {f"more_inputs[{i}]": (_as_tuple(one), {}) for i, one in enumerate(more_inputs)}
    translation = Translation(recurrence)
    with torch.no_grad(), _without_torchvision():
        program = torch.onnx.export(
            traced,
            dynamo=True,
            custom_translation_table=translation.table(),
            opset_version=OPSET,
            input_names=input_names,
            output_names=output_names,
            verbose=False,
        )
    assert program is not None
    model = translation.inlined(program.model_proto)
    _name_sizes(model)
    onnx.checker.check_model(model, full_check=True)
    report = Report(target, "onnx", "float32", recurrence)
    verify_module(report, plain, calls, model, tolerance)
    if not report.passed:
        raise VerifyError(report)
    write_bytes(target, model.SerializeToString())
    return report


@contextmanager
def _without_torchvision() -> Iterator[None]:
    """Hides the exporter's four log lines about operators of torchvision, which is not installed."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _as_tuple(args: Any) -> tuple[Any, ...]:
    """A single tensor is one argument, not one per row."""
    import torch

    return (args,) if isinstance(args, torch.Tensor) else tuple(args)


def trace(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """torch.export's graph of the module, with as many dynamic sizes as possible by default."""
    import torch
    from torch.utils import _pytree as pytree

    def open_sizes(value: Any) -> dict[int, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        return dict.fromkeys(range(value.dim()), torch.export.Dim.AUTO)

    if dynamic_shapes is None:
        named = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        dynamic_shapes = pytree.tree_map(open_sizes, dict(named))
    return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)


def _warn_of_fixed_sizes(traced: ExportedProgram) -> None:
    """Warns of sizes that torch.export has fixed because they are 1 in the example. The last one of three is
    left out: it is the number of inputs, which the module fixes anyway."""
    import torch

    own = {
        spec.arg.name
        for spec in traced.graph_signature.input_specs
        if spec.kind.name == "USER_INPUT"
    }
    for node in traced.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node.name in own and isinstance(value, torch.Tensor):
            sizes = value.shape[:2] if value.dim() == 3 else value.shape
            ones = [str(i) for i, n in enumerate(sizes) if isinstance(n, int) and n == 1]
            if ones:
                warnings.warn(
                    f"{node.name}: the file takes only size 1 in dimension {', '.join(ones)}, as the "
                    "example has; for any size, give an example with a larger one",
                    stacklevel=3,
                )


def _name_sizes(model: onnx.ModelProto) -> None:
    """Turns fixed sizes back into numbers: torch's exporter writes them as names, such as "4"."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param.isdecimal():
                size.dim_value = int(size.dim_param)


def _check_installed() -> None:
    """torch's exporter needs onnxscript."""
    if importlib.util.find_spec("onnxscript") is None:
        needs = how_to_install("export")
        raise ModuleNotFoundError(f"onnxscript is not installed; run: {needs}", name="onnxscript")


def _check_size(module: nn.Module) -> None:
    """torch's exporter puts the weights into the protobuf, which is limited to 2 GiB."""
    size = sum(v.nbytes for v in (*module.parameters(), *module.buffers()))
    if size > LARGEST:
        raise ValueError(
            f"module has {size:,} bytes of weights; accepted in one ONNX file: {LARGEST:,} (a model of "
            "tsm-train may be larger: tsm-export onnx writes its weights to a second file)"
        )


def _plain(module: nn.Module) -> nn.Module:
    """The module in eval mode on the CPU; a copy."""
    import torch

    for name, value in (*module.named_parameters(), *module.named_buffers()):
        if value.is_floating_point() and value.dtype != torch.float32:
            raise ValueError(f"{name} is {value.dtype}; accepted: torch.float32 (module.float())")
    return copy.deepcopy(module).cpu().eval()
