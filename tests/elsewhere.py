"""Tests that this machine cannot run are deselected, and a line at the end says how many and why.

A pytest plugin (conftest.py loads it). For GPU tests the line also reports their last run, from gpu.json, which
`make test-gpu` writes on a machine with a GPU.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).with_name("gpu.json")
DATE = "%Y-%m-%d %H:%M UTC"
LEFT_OUT = pytest.StashKey[dict[str, tuple[int, str]]]()


def no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "torch sees no CUDA device"


def no_triton() -> str | None:
    import triton_server

    return triton_server.why_not()


def no_consumers() -> str | None:
    """Why no consumer is installed; None if one is. Tests of consumers that are missing are then skipped one by
    one."""
    import consumers

    reasons = [consumers.why_not(name) for name in consumers.NAMES]
    return None if None in reasons else reasons[0]


def data_folder() -> Path:
    """Where the real data sets may be: $TSM_DATA, else ../shared/data beside the repository."""
    named = os.environ.get("TSM_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def no_data() -> str | None:
    folder = data_folder()
    found = (folder / "ptb.train.txt.xz").is_file()
    return None if found else f"no real data in {folder}: TSM_DATA names the folder that holds it"


# marker -> why its tests cannot run here; None if they can
MISSING = {"gpu": no_gpu, "triton": no_triton, "consumers": no_consumers, "data": no_data}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="write here how the GPU tests went")
    parser.addoption(
        "--commit", metavar="ID", help="what --record calls the tree; else git is asked"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = {}
    reason = MISSING["gpu"]() if config.getoption("--record") else None
    if reason is not None:
        raise pytest.UsageError(f"--record: {reason}")


@pytest.hookimpl(trylast=True)  # after -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, missing in MISSING.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = missing() if marked else None
        if reason is not None:
            config.stash[LEFT_OUT][marker] = (len(marked), reason)
            config.hook.pytest_deselected(items=marked)
            items[:] = [item for item in items if not item.get_closest_marker(marker)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # an xdist worker; the main process prints for it
        session.config.workeroutput["left_out"] = session.config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT].update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if config.getoption("--record"):
        write_record(Path(config.getoption("--record")), terminalreporter, config)
    for marker, (count, reason) in config.stash[LEFT_OUT].items():
        line = f"{marker}: {count:,} tests not run here ({reason})"
        terminalreporter.write_line(line + (f"; {last_run()}" if marker == "gpu" else ""))


def write_record(path: Path, reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    import torch

    from nightly import commit_of_tree

    def count(*outcomes: str) -> int:
        reports = [report for outcome in outcomes for report in reporter.stats.get(outcome, [])]
        # A file that cannot be imported has no keywords: it may hold GPU tests, and counts.
        return sum("gpu" in getattr(report, "keywords", ("gpu",)) for report in reports)

    record = {
        "commit": config.getoption("--commit") or commit_of_tree(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "passed": count("passed"),
        "failed": count("failed", "error"),
        "skipped": count("skipped"),
        "date": datetime.now(timezone.utc).strftime(DATE),
    }
    path.write_text(json.dumps(record, indent=1) + "\n")


def last_run() -> str:
    if not RECORD.exists():
        return "no record of a run (make test-gpu writes it)"
    record = json.loads(RECORD.read_text())
    date = datetime.strptime(record["date"], DATE).replace(tzinfo=timezone.utc)
    days = (datetime.now(timezone.utc) - date).days
    counts = ", ".join(f"{record[name]:,} {name}" for name in ("passed", "failed", "skipped"))
    return (
        f"last run: commit {record['commit'] or 'unknown'}, {record['gpu']}, {counts}, "
        f"{record['date']} ({days} day{'' if days == 1 else 's'} ago)"
    )
