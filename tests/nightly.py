"""Runs the long stress tests one after the other and records them in nightly.json beside this file.

python tests/nightly.py [NAME ...]    all of them, or some; a record keeps its date until the next run
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from tsm.plugin.common.processor import processor

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")

# The longest tests marked nightly, each of which is run separately; "pytest" runs the others.
ALONE = {
    "hostile": "tests/training/test_hostile_values.py",
    "kills": "tests/training/test_stop.py",
    "serving": "tests/serving",
    "steps": "tests/conformance/test_long_run.py",
}


def marked(*arguments: str) -> tuple[list[str], str]:
    command = [sys.executable, "-m", "pytest", "-m", "nightly", "-q", *arguments]
    return command, r"^\d+ (?:passed|failed|error|skipped).*|\w+: largest error \d\S*\d"


# name -> the command, and the part of its output that is kept
ATTACKS = {
    "forks": (
        ["build/dev/test_fork", "--no-skip", "--test-case=very many forks"],
        r"^\d+ forks .*",
    ),
    "memory": (["build/dev/test_out_of_memory", "--no-skip"], r"^\d+ allocations failed.*"),
    **{name: marked(path) for name, path in ALONE.items()},
    "pytest": marked(*(f"--ignore={path}" for path in ALONE.values())),
    "sanitize": (["make", "sanitize"], r"^\d+% tests passed.*"),
    "fuzz": (["make", "fuzz", "FUZZ_SECONDS=600"], r"^Done \d+ runs.*"),
}


def output_of(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commit_of_tree() -> str:
    """The commit, read before the first stress test, because its record changes the tree; "" if there is no
    git."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return ""
    return output_of("git", "describe", "--always", "--dirty", "--exclude", "*").strip()


def attack(name: str, commit: str) -> dict[str, object]:
    """Runs one stress test and shows its output; returns its record."""
    command, kept = ATTACKS[name]
    begin, lines = time.monotonic(), []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=-1, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines += re.findall(kept, line)
    return {
        "passed": process.returncode == 0,
        "result": lines,
        "seconds": round(time.monotonic() - begin),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "machine": f"{processor()}, {os.cpu_count()} cores",
    }


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        print(f"error: no attack {unknown[0]!r}; accepted: {', '.join(ATTACKS)}", file=sys.stderr)
        return 2
    failed, commit = False, commit_of_tree()
    for name in names or ATTACKS:
        print(f"[nightly] {name}", flush=True)
        result = attack(name, commit)
        failed |= not result["passed"]
        # The file is read again, because other records may have been added in the meantime.
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        RECORD.write_text(json.dumps({**record, name: result}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
