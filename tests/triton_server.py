"""A real tritonserver for tests (tsm/benchmarks/load/triton.py finds the binary); the client uses plain
HTTP."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

from tsm.benchmarks.load.triton import (
    command,
    free_port,
    place_runtime,
    process_environment,
    why_not,
)

__all__ = ["Server", "place_runtime", "why_not"]
KINDS = {"INT64": np.int64, "FP32": np.float32}


class Server:
    """with Server(repository, folder) as server: server.infer(...)"""

    def __init__(self, repository: Path, scratch: Path) -> None:
        self.port = free_port()
        self.log = scratch / "triton.log"
        self.command = command(repository, scratch, self.port)

    def __enter__(self) -> Server:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, env=process_environment(), stdout=log, stderr=subprocess.STDOUT
            )
        for _ in range(600):
            if self.process.poll() is not None:
                break
            try:
                self.get("health/live")
                return self
            except OSError:
                time.sleep(0.1)
        self.__exit__()
        raise AssertionError(f"tritonserver did not start:\n{self.log.read_text()[-4000:]}")

    def __exit__(self, *_: Any) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ready(self, model: str) -> bool:
        try:
            self.get(f"models/{model}/ready")
        except urllib.error.HTTPError:
            return False
        return True

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}/v2/{path}", timeout=60
        ) as answer:
            found: bytes = answer.read()
        return found

    def infer(
        self,
        model: str,
        sequence: int,
        start: bool = False,
        end: bool = False,
        **inputs: np.ndarray,
    ) -> np.ndarray:
        """Sends one request; returns the logits, or raises RuntimeError with the server's message."""
        kinds = {np.dtype(kind): name for name, kind in KINDS.items()}
        body = {
            "parameters": {
                "sequence_id": sequence,
                "sequence_start": start,
                "sequence_end": end,
            },
            "inputs": [
                {
                    "name": name,
                    "shape": list(value.shape),
                    "datatype": kinds[value.dtype],
                    "data": value.ravel().tolist(),
                }
                for name, value in inputs.items()
            ],
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v2/models/{model}/infer", json.dumps(body).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                (output,) = json.load(answer)["outputs"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["error"]) from error
        assert output["name"] == "logits" and output["datatype"] == "FP32"
        return np.array(output["data"], np.float32).reshape(output["shape"])
