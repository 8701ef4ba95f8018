"""docs/serving.md: its requests run against a server, and it names every flag and route."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import fields

import pytest

from documented import ROOT, blocks
from tsm.runtime.serving.cli import parser
from tsm.runtime.serving.routes import health, sessions
from tsm.runtime.serving.transport.limits import Limits

PAGE = ROOT / "docs" / "serving.md"
SPACE = {"__name__": "__main__"}  # shared by the page's Python blocks
BESIDE = [one for one in blocks(PAGE) if one.why and one.why.startswith("tests/serving runs it")]


@pytest.mark.parametrize("block", BESIDE, ids=lambda block: str(block.line))
def test_requests(block, server, tmp_path):
    code = block.code.replace("localhost:8080", server.netloc).replace("/text8/", "/lm/")
    if block.language == "python":
        exec(compile(code, block.where, "exec"), SPACE)
        return
    if shutil.which("curl") is None:
        pytest.skip("no curl on this machine")
    code = code.replace("curl ", "curl -sS --fail-with-body ")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("{") >= code.count("curl ")


def test_it_has_something_to_run():
    assert len(BESIDE) == 6


def test_routes_are_named():
    text = PAGE.read_text()
    for routes in (sessions.ROUTES, health.ROUTES):
        for _, path, _, _ in routes:
            for word in re.findall(r"[a-z]+", path.rpartition("/")[2]):
                assert word in text, path


def test_flags_that_it_names_are_there():
    """And the limits are flags."""
    known = parser().format_help()
    named = set(re.findall(r"(--[a-z]+[a-z-]*)", PAGE.read_text())) - {"--path", "--output"}
    assert len(named) > 15
    for flag in named | {f"--max-{one.name}" for one in fields(Limits)}:
        assert f"{flag} " in known or f"{flag}\n" in known, flag
