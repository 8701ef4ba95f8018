"""Everything that writes durable files: how each writes an old and a new version, and how they are read
back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tsm.export import entry
from tsm.plugin.cli.stream import save as save_stream
from tsm.plugin.common.atomic import write_bytes
from tsm.plugin.data import DataDir, Vocab
from tsm.plugin.data.build.options import Options
from tsm.plugin.data.build.prepare import prepare_text
from tsm.plugin.data.build.reviews import save_array
from tsm.plugin.data.build.sources import user_text
from tsm.plugin.data.tokenizers import plain_tokenizer
from tsm.plugin.reproduce.store import Store, Summary
from tsm.plugin.train.checkpoint import read_checkpoint, to_bytes, write_checkpoint

TEXTS = {"old": "the cat sat\n" * 3, "new": "a dog ran away\n" * 5}


class Writer(NamedTuple):
    """write(folder, "old" or "new"); read(folder) returns which of them is there and complete."""

    write: Callable[[Path, str], None]
    read: Callable[[Path], str]


def _write_checkpoint(root: Path, version: str) -> None:
    parts: dict[str, Any] = {"config": {}, "optimizer": {}, "train_state": {"version": version}}
    data = to_bytes({"model": {"w": torch.arange(50_000.0)}, **parts})
    write_checkpoint(data, root / "checkpoint_last.pt")


def _read_checkpoint(root: Path) -> str:
    found = read_checkpoint(root / "checkpoint_last.pt")
    assert torch.equal(found["model"]["w"], torch.arange(50_000.0))
    return found["train_state"]["version"]


def _write_data(root: Path, version: str) -> None:
    text = root.parent / f"{version}.txt"
    text.write_text(TEXTS[version])
    source = user_text({"train": text, "valid": text}, plain_tokenizer("word"))
    prepare_text(source, root / "data", Options())


def _read_data(root: Path) -> str:
    data = DataDir(root / "data")
    for version, text in TEXTS.items():
        words = text.replace("\n", " <eos> ").split()
        if set(words) == set(data.vocab.symbols):
            for split in ("train", "valid"):
                tokens = data.corpus(split).read(0, len(words)).tolist()
                assert [data.vocab.symbols[t] for t in tokens] == words
            return version
    raise AssertionError(f"neither: {data.vocab.symbols}")


class _Stream:
    def __init__(self, version: str) -> None:
        self.version = version

    def save_state(self) -> bytes:
        return self.version.encode() * 1000


def _summary(version: str) -> Summary:
    fields = dict.fromkeys(Summary.__dataclass_fields__)
    return Summary(**{**fields, "home": "h", "variant": "v", "seed": 1, "stopped": version})


class _Variant:
    home, name = "h", "v"


def _bytes(name: str, write: Callable[[Path, str], None]) -> Writer:
    """A file whose bytes are compared with those of each version, written separately."""

    def read(root: Path) -> str:
        import tempfile

        found = (root / name).read_bytes()
        for version in TEXTS:
            with tempfile.TemporaryDirectory() as scratch:
                write(Path(scratch), version)
                if (Path(scratch) / name).read_bytes() == found:
                    return version
        raise AssertionError(f"neither: {found[:80]!r}")

    return Writer(write, read)


def _array(root: Path, version: str) -> None:
    import numpy as np

    save_array(root / "a.npy", np.full((300, 300), len(version) + (version == "new"), np.float32))


def _export(root: Path, version: str) -> None:
    with entry._staged(root / "model.onnx") as staged:
        staged.write_bytes(version.encode() * 1000)


def _write_large_export(root: Path, version: str) -> None:
    """The weights are in a separate file, which is named after its content."""
    name = f"model.onnx.{version.encode().hex():0<16}.data"
    with entry._staged(root / "model.onnx") as staged:
        staged.write_text(name)
        (staged.parent / name).write_bytes(version.encode() * 1000)


def _read_large_export(root: Path) -> str:
    data = (root / (root / "model.onnx").read_text()).read_bytes().decode()
    version = data[: len(data) // 1000]
    assert data == version * 1000
    return version


WRITERS = {
    "an export": _bytes("model.onnx", _export),
    "an export of two files": Writer(_write_large_export, _read_large_export),
    "a file": _bytes("x", lambda r, v: write_bytes(r / "x", v.encode() * 100_000)),
    "a checkpoint": Writer(_write_checkpoint, _read_checkpoint),
    "a data folder": Writer(_write_data, _read_data),
    "a dictionary": _bytes("dict.txt", lambda r, v: Vocab([v, "x"], [2, 1]).save(r / "dict.txt")),
    "an array": _bytes("a.npy", _array),
    "a stream's state": _bytes("s", lambda r, v: save_stream(str(r / "s"), _Stream(v))),  # type: ignore[arg-type]
    "a summary": Writer(
        lambda r, v: Store(r).write(_Variant, _summary(v)),  # type: ignore[arg-type]
        lambda r: str(Store(r).read(_Variant, 1).stopped),  # type: ignore[arg-type,union-attr]
    ),
}
