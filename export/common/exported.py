"""A file that tsm-export wrote: its format, its metadata, and what runs it.

    (found,) = open_exported("model.onnx")     # or .tsm, .pt, .pt2
    found.facts["family"], found.options(), found.proof

A Triton repository holds two such files, one per model; either of them may have been deleted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import seal
from .formats import Options, get_format
from .runner import Runner
from .tsm_header import METADATA, read_header


@dataclass(frozen=True)
class Exported:
    """One model. place: its file or, for Triton, its folder. facts: as in facts.py."""

    path: Path
    kind: str
    place: Path
    triton: bool = False

    @property
    def name(self) -> str:
        return self.place.name

    def check(self) -> str:
        """Checks every byte; returns what was compared, or raises ValueError for a damaged file."""
        return seal.check_folder(self.place) if self.triton else seal.check(self.path, self.kind)

    @property
    def facts(self) -> dict[str, Any]:
        return facts_of(self.path, self.kind)

    @property
    def proof(self) -> dict[str, Any] | None:
        return seal.proof_of(self.path, self.kind)

    def options(self) -> Options:
        """How it was exported."""
        facts = self.facts
        inputs = facts.get("inputs")
        return Options(
            facts["recurrence"] or None,
            int(facts["chunk_size"]) if facts["chunk_size"] else None,
            facts["dtype"],
            None if inputs is None else tuple(json.loads(inputs)),
        )

    def runners(self) -> list[Runner]:
        """What runs it here."""
        return list(get_format(self.kind).runners(self.path, self.options()))


def open_exported(path: str | Path) -> list[Exported]:
    """All models at a path; FileNotFoundError if there are none."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    if not path.is_dir():
        return [Exported(path, seal.kind_of(path), path)]
    found = [
        Exported(file, kind, file.parent.parent, True)
        for kind in ("onnx", "tsm")
        for file in sorted(path.glob(f"*/1/model.{kind}"))
    ]
    if not found:
        raise FileNotFoundError(
            f"{path} is a folder without a model of tsm; accepted: what tsm-export triton wrote"
        )
    return found


def facts_of(path: Path, kind: str) -> dict[str, Any]:
    """The metadata of a file, under the names listed in facts.py."""
    if kind == "tsm":
        return _facts_of_tsm(path)
    if kind == "onnx":
        import onnx

        props = onnx.load(str(path), load_external_data=False).metadata_props
        return {p.key: p.value for p in props}
    from .facts import FACTS

    text = seal.extra_file(path, f"extra/{FACTS}")
    if text is None:
        raise ValueError(f"{path} has no {FACTS}; accepted: a file that tsm-export wrote")
    found: dict[str, Any] = json.loads(text)
    return found


def _facts_of_tsm(path: Path) -> dict[str, Any]:
    header = read_header(path)
    try:
        return _facts_of_header(header, json.loads(header[METADATA]["tsm"]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: the header is not that of a model ({error!r})") from error


def _facts_of_header(header: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    types = {"F32": "float32", "BF16": "bfloat16", "I8": "int8"}
    states = [
        {"name": state["name"], "layer": number, "width": state["width"]}
        for number, layer in enumerate(config["layers"])
        for state in layer["states"]
    ]
    return {
        "family": config["family"],
        "arch": config["arch"],
        "recurrence": "",
        "chunk_size": "",
        "dtype": types[header["layers.0.weight_x"]["dtype"]],
        "input": json.dumps(config["input"]),
        "output_size": str(config["output"]["size"]),
        "states": json.dumps(states),
        "takes_dt": json.dumps(any(layer["takes_dt"] for layer in config["layers"])),
        "shortest_dt": json.dumps(max(layer["shortest_dt"] for layer in config["layers"])),
    }
