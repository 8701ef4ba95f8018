"""An ONNX model on disk: one file, and a second one beside it if a protobuf cannot hold the weights.

The weights of a large model never enter a protobuf, which is serialized as a whole and limited to 2 GiB. They
are written one after the other to a second file, each at a multiple of 4096 bytes so that a consumer may map
them, and the model stores the offsets. The second file's name contains part of its SHA-256, so that an old
model never reads the weights of a new one that replaced it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..common.runner import Array

LARGEST = 2**31 - 2**24
"""Bytes of weights that fit into one file, leaving room for the graph."""
ALIGNED = 4096
SMALL = 1024  # bytes; smaller tensors, which shape inference may read, stay in the model


def inline(arrays: Mapping[str, Array]) -> list[TensorProto]:
    """Initialisers that contain their numbers."""
    size = sum(array.nbytes for array in arrays.values())
    if size > LARGEST:
        raise ValueError(f"{size:,} bytes of weights; accepted in one ONNX file: {LARGEST:,}")
    return [numpy_helper.from_array(array, name) for name, array in arrays.items()]


def external(arrays: Mapping[str, Array], path: Path) -> list[TensorProto]:
    """Initialisers of the model `path` whose numbers are written to a file beside it."""
    found, outside, digest = [], [], hashlib.sha256()
    new = path.with_name(f"{path.name}.data")
    with open(new, "wb") as file:
        for name, array in arrays.items():
            if array.nbytes < SMALL:
                found.append(numpy_helper.from_array(array, name))
                continue
            padding = b"\0" * (-file.tell() % ALIGNED)
            place = {"offset": file.tell() + len(padding), "length": array.nbytes}
            for part in (padding, np.ascontiguousarray(array).data):
                file.write(part)
                digest.update(part)
            tensor = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            found.append(tensor)
            outside.append(tensor)
    named = new.rename(path.with_name(f"{path.name}.{digest.hexdigest()[:16]}.data"))
    for tensor in outside:
        tensor.external_data.add(key="location", value=named.name)
    return found


def save(model: onnx.ModelProto, path: Path) -> None:
    """The file, as it is."""
    path.write_bytes(model.SerializeToString())


def check(path: Path) -> None:
    """onnx's full check, and strict shape inference, which does not read weights outside the file."""
    onnx.checker.check_model(str(path), full_check=True)
    model = onnx.load(str(path), load_external_data=False)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
