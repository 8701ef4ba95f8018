"""Running what a developer would type."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*words: object, **options) -> str:
    """The command's output; a failing command fails the test and shows its output."""
    command = [str(word) for word in words]
    result = subprocess.run(command, capture_output=True, text=True, **options)
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout
