"""A real tritonserver: the binary of the PyPI package nvidia-pytriton, with its Python backend.

It has its own environment (`make triton-env`), because it pins numpy 1.26.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def environment() -> Path:
    return Path(os.environ.get("TSM_TRITON_ENV", ROOT / ".venv-triton"))


def server_folder() -> Path:
    return environment() / "lib" / f"python{VERSION}" / "site-packages/pytriton/tritonserver"


def why_not() -> str | None:
    """Why there is no server here; None if there is one."""
    folder = server_folder()
    if not (folder / "bin" / "tritonserver").is_file():
        return (
            f"no tritonserver for Python {VERSION} in {environment()}: `make triton-env` makes it, "
            "TSM_TRITON_ENV names another place"
        )
    if not (folder / "python_backend_stubs" / VERSION).is_dir():
        return f"nvidia-pytriton has no Python backend for Python {VERSION}"
    return None


def process_environment() -> dict[str, str]:
    """The stub needs the libpython of the Python that it embeds, and the libraries of the package it came from.
    It ignores PYTHONPATH and uses the packages of the first python3 in PATH.
    """
    libraries = [environment() / f"lib/python{VERSION}/site-packages/nvidia_pytriton.libs"]
    libraries.append(Path(sysconfig.get_config_var("LIBDIR")))
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        "PATH": f"{environment() / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }


def command(repository: Path, scratch: Path, port: int) -> list[str]:
    """The command line of the server; its backend is assembled in `scratch`."""
    backend = scratch / "backends" / "python"
    backend.mkdir(parents=True)
    folder = server_folder()
    stub = folder / "python_backend_stubs" / VERSION / "triton_python_backend_stub"
    for file in (*(folder / "backends" / "python").glob("*.*"), stub):
        if file.is_file():
            shutil.copy2(file, backend / file.name)
    return [
        str(folder / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backend.parent}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--exit-on-error=false",
        "--exit-timeout-secs=2",  # an unfinished sequence counts as a request in flight
        "--backend-config=python,shm-default-byte-size=1048576",
    ]


def place_runtime(version: Path) -> None:
    """Copy tsm.runtime, without the rest of tsm, beside a model.py; a real server would have it installed."""
    import tsm
    from tsm import runtime
    from tsm.runtime import _core

    package = version / "tsm"
    (package / "runtime").mkdir(parents=True)
    shutil.copy2(Path(tsm.__file__), package / "__init__.py")
    shutil.copy2(Path(runtime.__file__), package / "runtime" / "__init__.py")
    shutil.copy2(_core.__file__, package / "runtime" / Path(_core.__file__).name)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
