"""What an exported file carries: the proof of its verification, and a checksum of every byte.

    file                  the proof (JSON)                     the checksum
    model.tsm             "proof" in the header's metadata     the file's own (checksum.py)
    model.onnx            "proof" in metadata_props            "checksum" there
    model.pt, model.pt2   the extra file "proof.json"          the archive's comment
    a Triton model        those of the file in it              SHA256SUMS, as sha256sum writes it

The checksum of ONNX files and archives is `tsm-sha256:` followed by 64 hex digits: the SHA-256 of the file with
zeros in place of the digits. With `tsm-sha256+data:` it continues over the bytes of FILE.<hash>.data. A file
has exactly one checksum; with none or two it is damaged. So every flipped bit is found: it changes the digits,
the text before them, or the bytes that are hashed.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from . import checksum
from .tsm_header import METADATA, read_header, with_metadata

DIGITS = 64
PATTERN = re.compile(rb"tsm-sha256(\+data)?:([0-9a-f]{64})")
PROOF, CHECKSUM, SUMS = "proof", "checksum", "SHA256SUMS"
EXTRA = "extra/proof.json"
Record = Mapping[str, Any]


def kind_of(path: Path) -> str:
    """tsm, onnx, torchscript or pt2, from the contents of a file."""
    with open(path, "rb") as file:
        head = file.read(9)
    if head[8:] == b"{":
        return "tsm"
    if head[:4] != b"PK\x03\x04":
        return "onnx"
    return "pt2" if any(n.endswith("/archive_format") for n in _names(path)) else "torchscript"


def _names(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return []  # too damaged to be listed; the checksum will show it


def seal(path: Path, kind: str, record: Record) -> None:
    """Write the proof and the checksum into a file."""
    text = json.dumps(dict(record), ensure_ascii=True)
    {"tsm": _seal_tsm, "onnx": _seal_onnx}.get(kind, _seal_archive)(path, text)


def _seal_tsm(path: Path, text: str) -> None:
    path.write_bytes(with_metadata(path.read_bytes(), {PROOF: text}))


def _seal_onnx(path: Path, text: str) -> None:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    mark = f"tsm-sha256{'+data' if _location(model) else ''}:{'0' * DIGITS}"
    for key, value in ((PROOF, text), (CHECKSUM, mark)):
        model.metadata_props.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    _fill_in(path)


def _seal_archive(path: Path, text: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        top = archive.namelist()[0].split("/")[0]
        # A fixed date, so that the same model gives the same bytes.
        archive.writestr(zipfile.ZipInfo(f"{top}/{EXTRA}", (1980, 1, 1, 0, 0, 0)), text)
        archive.comment = f"tsm-sha256:{'0' * DIGITS}".encode()
    _fill_in(path)


def seal_folder(folder: Path) -> None:
    """SHA256SUMS of a Triton model: every file in it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != SUMS)
    lines = [f"{_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def check(path: Path, kind: str) -> str:
    """Compares the checksum and returns a few words about it; ValueError if a byte has changed."""
    if kind == "tsm":
        data = path.read_bytes()
        checksum.check(data, path.name)
        return f"CRC-32 {checksum.stated(data)} of {len(data):,} bytes"
    mark, found, size = _digests(path)
    if mark.digits != found:
        raise ValueError(
            f"{path.name} is damaged: its SHA-256 is {found}, but it states {mark.digits}"
        )
    return f"SHA-256 {found[:16]}... of {size:,} bytes"


def check_folder(folder: Path) -> str:
    """`check` of a Triton model. Files that SHA256SUMS does not name are ignored."""
    sums = folder / SUMS
    if not sums.is_file():
        raise ValueError(f"{folder.name} has no {SUMS}; accepted: a model that tsm-export wrote")
    text = sums.read_bytes()
    lines = [re.fullmatch(rb"([0-9a-f]{64})  ([\w./-]+)\n", line) for line in text.splitlines(True)]
    named = [(m[2].decode(), m[1].decode()) for m in lines if m]
    if not named or len(named) < len(lines) or named != sorted(set(named)):
        raise ValueError(f"{folder.name}/{SUMS} is damaged: it is not a list of sums and files")
    for name, stated in named:
        file = folder / name
        if ".." in Path(name).parts or Path(name).is_absolute() or not file.is_file():
            raise ValueError(f"{folder.name} is damaged: {name}, listed in {SUMS}, is missing")
        if _sha256(file) != stated:
            raise ValueError(f"{folder.name}/{name} is damaged: its SHA-256 is not that of {SUMS}")
    return f"SHA-256 of {len(named)} files"


def proof_of(path: Path, kind: str) -> dict[str, Any] | None:
    """The proof that a file carries; None if it has none."""
    if kind == "tsm":
        text = read_header(path)[METADATA].get(PROOF)
    elif kind == "onnx":
        import onnx

        props = onnx.load(str(path), load_external_data=False).metadata_props
        text = {p.key: p.value for p in props}.get(PROOF)
    else:
        text = extra_file(path, EXTRA)
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the proof is not JSON ({error})") from error
    return found if isinstance(found, dict) else None


def extra_file(path: Path, name: str) -> str | None:
    """A text file in an archive that torch wrote."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.partition("/")[2] == name:
                return archive.read(member).decode()
    return None


def _fill_in(path: Path) -> None:
    """Overwrite the placeholder zeros in the file with its checksum."""
    mark, found, _ = _digests(path)
    with open(path, "r+b") as file:
        file.seek(mark.end - DIGITS)
        file.write(found.encode())


class Mark(NamedTuple):
    """The checksum stated in a file."""

    digits: str
    end: int
    with_data: bool


def _mark(path: Path) -> Mark:
    if not path.stat().st_size:
        raise ValueError(f"{path.name} is empty")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        marks = [Mark(m[2].decode(), m.end(), bool(m[1])) for m in PATTERN.finditer(data)]
    if len(marks) != 1:
        raise ValueError(
            f"{path.name} states {len(marks)} checksums; accepted: one. It is damaged, or was not exported by "
            "this version of tsm: export it again"
        )
    return marks[0]


def _digests(path: Path) -> tuple[Mark, str, int]:
    """Returns (stated checksum, actual checksum, number of bytes)."""
    mark, digest = _mark(path), hashlib.sha256()
    with open(path, "rb") as file:
        digest.update(file.read(mark.end - DIGITS) + b"0" * DIGITS)
        file.seek(mark.end)
        size = _update(digest, file)
    if mark.with_data:
        with open(_data_of(path), "rb") as file:
            size += _update(digest, file)
    return mark, digest.hexdigest(), size


def _update(digest: Any, file: BinaryIO) -> int:
    """Hash the rest of a file; returns its size."""
    for piece in iter(lambda: file.read(1 << 20), b""):
        digest.update(piece)
    return file.tell()


def _location(model: Any) -> str:
    """The file with an ONNX model's weights; "" if they are inside."""
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                return str(entry.value)
    return ""


def _data_of(path: Path) -> Path:
    """The file beside an ONNX model that holds its weights."""
    import onnx

    try:
        name = _location(onnx.load(str(path), load_external_data=False))
    except Exception as error:  # protobuf raises its own classes
        raise ValueError(f"{path.name} is damaged: it is not an ONNX model ({error})") from error
    found = path.with_name(name) if re.fullmatch(r"[^/\\\0]+\.data", name) else None
    if found is None or not found.is_file():
        raise ValueError(f"{path.name} is damaged, or its weights, {name!r}, are not beside it")
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        _update(digest, file)
    return digest.hexdigest()
