"""The page in a real Chromium, by keyboard and mouse, light and dark; the scenarios are in browser_pages.py.

These tests are marked `browser` and need Chromium and `make browser-env`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from documented import ROOT

from ..server_process import free_port, serving

pytestmark = pytest.mark.browser
PROGRAM = Path(__file__).parent / "browser_pages.py"
NAMES = re.findall(r"^@scenario\ndef (\w+)", PROGRAM.read_text(), re.MULTILINE)


def why_not() -> str | None:
    """Why there is no browser; None if there is one."""
    if not python().is_file():
        return (
            f"no playwright: `make browser-env` installs it, TSM_BROWSER_ENV names another place"
            f" than {python().parents[1]}"
        )
    return None if chromium() else "no chromium on this machine"


def python() -> Path:
    return Path(os.environ.get("TSM_BROWSER_ENV", ROOT / ".venv-browser")) / "bin" / "python"


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def results(files, tmp_path_factory):
    if reason := why_not():
        pytest.skip(reason)
    models = [files[name] for name in ("lm", "words", "ids", "tagger", "moods")]
    options = (*models, "--store", f"sqlite:{tmp_path_factory.mktemp('store')}/states.db")
    ports = [free_port() for _ in range(3)]
    home, peer, down = (f"http://127.0.0.1:{port}" for port in ports)
    host = "127.0.0.1"
    if has_ipv6():
        host, peer = "::1", f"http://[::1]:{ports[1]}"
    with (
        serving(*options, "--port", ports[0], "--peer", peer, "--peer", down),
        serving(*options, "--host", host, "--port", ports[1], "--peer", home),
    ):
        command = [python(), PROGRAM, home, chromium()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_page(results, name):
    assert results[name] is None, results[name]


def test_sessions_are_removed_when_the_page_is_left(results):
    assert len(NAMES) == 15 and results["sessions"] == []
