"""`tsm-train` in separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src"
COMMAND = ["-m", "tsm.plugin.cli.train"]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def start(flags: list[str], processes: int = 1, **options: Any) -> subprocess.Popen[str]:
    """Starts one process, or several under torchrun; options are those of Popen."""
    launcher = [sys.executable]
    if processes > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone"]
        launcher += ["--nproc-per-node", str(processes)]
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup
    try:
        return _popen([*launcher, *COMMAND, *flags], options)
    finally:
        signal.signal(signal.SIGHUP, hangup)


def _popen(command: list[str], options: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment(),
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
    )


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[str]]:
    """A program in this folder, driven over pipes; it ends when its stdin is closed."""
    command = [sys.executable, str(Path(__file__).with_name(program))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment(), text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process


def finish(process: subprocess.Popen[str], timeout: float = 240) -> tuple[int, str]:
    """(exit code, stdout and stderr)"""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"no end after {timeout} s\n{out}\n{err}") from None
    return process.returncode, (out or "") + (err or "")


def wait_for(path: Path, seconds: float = 120) -> None:
    """Until the file is there."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear in {seconds} s"
        time.sleep(0.01)
