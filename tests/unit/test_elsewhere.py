"""Tests that cannot run here are deselected and counted; for GPU tests the last run is reported."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import elsewhere

CONFTEST = """
import sys
from pathlib import Path
from types import SimpleNamespace as Names

import elsewhere

elsewhere.RECORD = Path(__file__).with_name("gpu.json")
elsewhere.MISSING = {"gpu": lambda: REASON, "triton": lambda: "no server"}
sys.modules["torch"] = Names(__version__="2.11", cuda=Names(get_device_name=lambda: "Some GPU"))
"""
TESTS = """
import pytest

@pytest.mark.gpu
@pytest.mark.parametrize("n", range(3))
def test_on_gpu(n):
    if n == 1:
        pytest.skip("two GPUs")

@pytest.mark.gpu
def test_that_fails():
    assert False

@pytest.mark.triton
def test_server():
    pass

@pytest.mark.parametrize("n", range(5))
def test_anywhere(n):
    pass
"""
XDIST = [(), ("-n", "2")] if importlib.util.find_spec("xdist") else [()]


@pytest.fixture
def run(tmp_path):
    """Runs pytest with the plugin on TESTS, with `reason` as the reason why the GPU is missing; returns (exit
    code, output)."""
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu: x\n  triton: x\n")

    def call(reason, *flags):
        (tmp_path / "conftest.py").write_text(f"REASON = {reason!r}\n{CONFTEST}")
        command = [sys.executable, "-m", "pytest", "-p", "elsewhere", "-p", "no:cacheprovider"]
        paths = f"{Path(elsewhere.__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        done = subprocess.run(
            [*command, *flags],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.returncode, done.stdout

    return call


@pytest.mark.parametrize("workers", XDIST, ids=str)
def test_one_line_for_each_kind(run, tmp_path, workers):
    date = datetime.now(timezone.utc) - timedelta(days=3, hours=1)
    record = {"commit": "abc1234", "gpu": "NVIDIA H200", "passed": 1234, "failed": 0, "skipped": 5}
    record["date"] = date.strftime(elsewhere.DATE)
    (tmp_path / "gpu.json").write_text(json.dumps(record))
    code, printed = run("no device", *workers)
    assert code == 0 and "5 passed" in printed and "skipped" not in printed.splitlines()[-1], (
        printed
    )
    lines = [line for line in printed.splitlines() if "not run here" in line]
    assert lines == [
        "gpu: 4 tests not run here (no device); last run: commit abc1234, NVIDIA H200, "
        f"1,234 passed, 0 failed, 5 skipped, {record['date']} (3 days ago)",
        "triton: 1 tests not run here (no server)",
    ]


def test_what_was_not_asked_for_is_not_counted(run):
    _, printed = run("no device", "-m", "not gpu")
    assert "gpu:" not in printed and "triton: 1 tests not run here" in printed
    _, printed = run("no device", "-m", "gpu")
    assert "no record of a run (make test-gpu writes it)" in printed and "triton:" not in printed


def test_the_record_of_a_run(run, tmp_path):
    code, printed = run(None, "--record", "gpu.json", "--commit", "abc1234")
    assert code == 1, printed
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record.pop("torch") and record.pop("date")
    counts = {"passed": 2, "failed": 1, "skipped": 1}
    assert record == {"commit": "abc1234", "gpu": "Some GPU", **counts}
    _, printed = run("no device")
    assert "abc1234, Some GPU, 2 passed, 1 failed, 1 skipped, " in printed
    assert "(0 days ago)" in printed


def test_no_record_without_a_gpu(run, tmp_path):
    code, printed = run("no device", "--record", "gpu.json")
    assert code == pytest.ExitCode.USAGE_ERROR and "--record: no device" in printed
    assert not (tmp_path / "gpu.json").exists()
