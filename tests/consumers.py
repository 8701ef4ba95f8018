"""Consumers of ONNX files besides ONNX Runtime in Python; each is a process that reads requests line by line.

They have their own environment (`make consumers-env`). The programs are in tests/export/consumers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tsm.export.common.runner import Array
from tsm.export.onnx.runners import GraphRunner

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "export" / "consumers"
NAMES = ("openvino", "onnxruntime-node", "onnxruntime-web")


def environment() -> Path:
    return Path(os.environ.get("TSM_CONSUMERS_ENV", ROOT / ".venv-consumers"))


def why_not(name: str) -> str | None:
    """Why this consumer is not installed; None if it is."""
    place = environment()
    made = f"`make consumers-env` makes it, TSM_CONSUMERS_ENV names another place than {place}"
    if name == "openvino":
        found = (place / "bin" / "python").is_file()
    elif shutil.which("node") is None:
        return f"no node for {name}: install Node.js (tried: 20)"
    else:
        found = (place / "node_modules" / name / "package.json").is_file()
    return None if found else f"no {name}: {made}"


class Consumer:
    """with Consumer("openvino") as consumer: consumer.open(path); consumer.run(feeds)"""

    def __init__(self, name: str) -> None:
        self.name, place = name, environment()
        if name == "openvino":
            self.command = [place / "bin" / "python", PROGRAMS / "serve_openvino.py"]
        else:
            self.command = ["node", PROGRAMS / "serve.mjs", place, name]

    def __enter__(self) -> Consumer:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
        return self

    def __exit__(self, *_: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def open(self, path: Path) -> list[list[str]]:
        """The names of each input."""
        found: list[list[str]] = self._ask({"open": str(path)})["inputs"]
        return found

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """All outputs by name; raises RuntimeError with the consumer's message."""
        given = {
            name: {
                "type": str(value.dtype),
                "shape": value.shape,
                "data": base64.b64encode(np.ascontiguousarray(value)).decode(),
            }
            for name, value in feeds.items()
        }
        return {
            name: np.frombuffer(base64.b64decode(v["data"]), v["type"]).reshape(v["shape"])
            for name, v in self._ask({"feeds": given})["outputs"].items()
        }

    def _ask(self, what: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the consumer ended with {self.process.wait(timeout=60)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer


class ConsumerRunner(GraphRunner):
    """A file in a consumer."""

    def __init__(self, consumer: Consumer, path: Path) -> None:
        props = onnx.load(str(path)).metadata_props
        super().__init__(path, {prop.key: prop.value for prop in props})
        self.consumer = consumer
        consumer.open(path)

    def call(self, feeds: dict[str, Array]) -> list[Array]:
        found = self.consumer.run(feeds)
        return [found[name] for name in self.outputs]
