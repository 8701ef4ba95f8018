"""A real tritonserver for tests: the binary of the PyPI package nvidia-pytriton, with its Python backend.

It lives in an environment of its own (`make triton-env`), since it pins numpy 1.26. The client is plain HTTP.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
KINDS = {"INT64": np.int64, "FP32": np.float32}
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def environment() -> Path:
    return Path(os.environ.get("TSM_TRITON_ENV", ROOT / ".venv-triton"))


def server_folder() -> Path:
    return environment() / "lib" / f"python{VERSION}" / "site-packages/pytriton/tritonserver"


def why_not() -> str | None:
    """The reason that there is no server here; None where there is one."""
    folder = server_folder()
    if not (folder / "bin" / "tritonserver").is_file():
        return (
            f"no tritonserver for Python {VERSION} in {environment()}: `make triton-env` makes it, "
            "TSM_TRITON_ENV names another place"
        )
    if not (folder / "python_backend_stubs" / VERSION).is_dir():
        return f"nvidia-pytriton has no Python backend for Python {VERSION}"
    return None


class Server:
    """with Server(repository, folder) as server: server.infer(...)"""

    def __init__(self, repository: Path, scratch: Path) -> None:
        self.port = _free_port()
        self.log = scratch / "triton.log"
        backend = scratch / "backends" / "python"
        backend.mkdir(parents=True)
        folder = server_folder()
        stub = folder / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
        for file in (*(folder / "backends" / "python").glob("*.*"), stub):
            if file.is_file():
                shutil.copy2(file, backend / file.name)
        # The stub wants the libpython of the Python that it embeds, and the libraries of the package that it
        # was copied from. It reads no PYTHONPATH: it takes the packages of the first python3 in PATH.
        libraries = [environment() / f"lib/python{VERSION}/site-packages/nvidia_pytriton.libs"]
        libraries.append(Path(sysconfig.get_config_var("LIBDIR")))
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
            "PATH": f"{environment() / 'bin'}{os.pathsep}{os.environ['PATH']}",
        }
        self.command = [
            str(folder / "bin" / "tritonserver"),
            f"--model-repository={repository}",
            f"--backend-directory={backend.parent}",
            "--http-address=127.0.0.1",
            f"--http-port={self.port}",
            "--allow-grpc=false",
            "--allow-metrics=false",
            "--exit-on-error=false",
            "--exit-timeout-secs=2",  # a sequence that was not ended counts as in flight
            "--backend-config=python,shm-default-byte-size=1048576",
        ]

    def __enter__(self) -> Server:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdout=log, stderr=subprocess.STDOUT
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
        """logits of one request; RuntimeError with the server's words."""
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


def place_runtime(version: Path) -> None:
    """tsm.runtime and nothing else of tsm beside a model.py, where a server would have it installed."""
    import tsm
    from tsm.runtime import _core

    package = version / "tsm"
    (package / "runtime").mkdir(parents=True)
    shutil.copy2(Path(tsm.__file__), package / "__init__.py")
    shutil.copy2(ROOT / "runtime" / "__init__.py", package / "runtime" / "__init__.py")
    shutil.copy2(_core.__file__, package / "runtime" / Path(_core.__file__).name)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
