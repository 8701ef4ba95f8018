"""Recognises the kind of a file by its first bytes, so that an error can say what a wrong file is."""

from __future__ import annotations

import struct
from pathlib import Path

CHECKPOINT = "a checkpoint (.pt)"
MODEL = "a .tsm model file"
TORCHSCRIPT = "a TorchScript file"
PT2 = "a torch.export file (.pt2)"
ONNX = "an ONNX file"
STATE = "a saved state of a stream"
MODELS = (CHECKPOINT, MODEL, TORCHSCRIPT, PT2, ONNX)

STARTS = {
    b"tsmstate": STATE,
    b"TSMTOKEN": "the tokens of a data folder",
    b"\x93NUMPY": "a NumPy array",
    b"\x1f\x8b": "a gzip file",
    b"\xfd7zXZ": "an xz file",
    b"BZh": "a bzip2 file",
}
# The kind of a folder, by a file in it.
FOLDERS = {
    "checkpoint_last.pt": "the folder of a run; give a file in it, such as checkpoint_best.pt",
    "meta.json": "a data folder",
    "config.pbtxt": "a model of a Triton repository",
}
USES = {
    CHECKPOINT: "tsm-eval, tsm-generate, tsm-analyze and tsm-export read it",
    MODEL: "tsm-stream reads it",
    ONNX: "ONNX Runtime reads it",
    TORCHSCRIPT: "torch.jit.load reads it",
    PT2: "torch.export.load reads it",
    STATE: "tsm-stream --load-state reads it",
}
FIRST = 4096  # number of bytes to examine
# ir_version (field 1 of ModelProto) and the tags of the fields that may follow it.
ONNX_VERSIONS, ONNX_FIELDS = range(1, 64), b"\x12\x1a\x22\x28\x32\x3a\x42"


def file_kind(path: str | Path) -> str:
    """The kind of the file or folder in words; "" if unknown."""
    path = Path(path)
    if path.is_dir():
        return next((what for name, what in FOLDERS.items() if (path / name).exists()), "a folder")
    try:
        with path.open("rb") as file:
            first = file.read(FIRST)
    except OSError:
        return ""
    return _by_first_bytes(first) or (_zip_kind(path) if first[:4] == b"PK\3\4" else "")


def wrong_kind(path: str | Path, accepted: str) -> str:
    """The error text for a file of the wrong kind; "" if its kind is unknown or is `accepted`."""
    kind = file_kind(path)
    if kind in ("", accepted):
        return ""
    use = f" ({USES[kind]})" if kind in USES else ""
    return f"{path} is {kind}{use}; accepted: {accepted}"


def _by_first_bytes(first: bytes) -> str:
    for start, what in STARTS.items():
        if first.startswith(start):
            return what
    if first[8:9] == b"{" and int.from_bytes(first[:8], "little") <= 1 << 24:
        return MODEL if b'"tsm":' in first else "a safetensors file"
    if first[:1] == b"\x08" and first[1:2] and first[1] in ONNX_VERSIONS and first[2:3]:
        return ONNX if first[2] in ONNX_FIELDS else ""
    return ""


def _zip_kind(path: Path) -> str:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return ""  # damaged
    inside = {name.partition("/")[2] for name in names}
    if {"archive_format", "models/model.json"} <= inside:
        return PT2
    if "data.pkl" in inside:
        return TORCHSCRIPT if "constants.pkl" in inside else CHECKPOINT
    return "a NumPy archive (.npz)" if names and names[0].endswith(".npy") else ""
