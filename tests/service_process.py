"""examples/python_service.py as a process, and requests to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[1] / "examples" / "python_service.py"


def command(model_path, folder, *options):
    """Arguments of subprocess.run."""
    args = [sys.executable, SERVICE, model_path, "--port", "0", "--snapshots", folder, *options]
    return dict(args=args, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


@contextmanager
def running(model_path, folder, *options):
    """A service and its address; killed at the end, if it still runs."""
    begin = command(model_path, folder, *options)
    with subprocess.Popen(**begin, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("serving on "), line
            yield process, line.split()[-1]
        finally:
            process.kill()


@contextmanager
def service(model_path, folder, *options):
    """The address of a running service; it is ended as an operator would end it."""
    with running(model_path, folder, *options) as (process, address):
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def call(method, address, body=None):
    data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        raw = response.read()
        return json.loads(raw) if "json" in response.headers["Content-Type"] else raw


def refused(method, address, body=None):
    """Status and message of a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        call(method, address, body)
    return caught.value.code, caught.value.read().decode()
