"""Finds the shell and Python blocks of a page and runs them as a reader would: in order, in one folder.

<!-- not run: needs a GPU -->        above a block: it is skipped for this reason
<!-- run with 5 for 5000 -->         above a block: it is run with this replacement, to be quick
<!-- before: cp a.tsm model.tsm -->  anywhere: a command that the reader has already run, on another page
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PART = re.compile(
    r"<!-- before: (?P<before>.+?) -->"
    r"|(?:<!-- not run: (?P<why>.+?) -->\n+|<!-- run with (?P<new>.+?) for (?P<old>.+?) -->\n+)?"
    r"^```(?P<language>sh|python)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str  # sh, python
    code: str
    why: str | None  # not run

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    name = page.name if not page.is_relative_to(ROOT) else str(page.relative_to(ROOT))
    for part in PART.finditer(text):
        start = part.start("before") if part["before"] else part.start("code")
        line = text.count("\n", 0, start) + 1
        if part["before"]:
            yield Block(name, line, "sh", part["before"], None)
        else:
            code = part["code"]
            if part["old"]:
                assert part["old"] in code, f"{name}:{line}: no {part['old']!r} in the block"
                code = code.replace(part["old"], part["new"])
            yield Block(name, line, part["language"], code, part["why"])


class Reader:
    """A reader who pastes blocks into a terminal and into one Python session, both in `folder`."""

    def __init__(self, folder: Path) -> None:
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.where = {
            "cwd": folder,
            "env": {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")},
        }
        self.said = folder / ".said"
        self.session: subprocess.Popen[str] | None = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        if self.session:
            self.session.communicate()

    def run(self, block: Block) -> None:
        run = self.python if block.language == "python" else self.shell
        assert run(block), f"{block.where}\n{block.code}\n{self.said.read_text()[-4000:]}"

    def shell(self, block: Block) -> bool:
        command = ["bash", "-euo", "pipefail", "-c", block.code]
        with self.said.open("w") as said:
            done = subprocess.run(
                command, **self.where, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        return done.returncode == 0

    def python(self, block: Block) -> bool:
        """Runs the block with empty lines before it, so that a traceback shows the line numbers of the page."""
        if self.session is None:
            with self.said.open("w") as said:
                self.session = subprocess.Popen(
                    [sys.executable, "-c", SESSION],
                    **self.where,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    text=True,
                )
        assert self.session.stdin and self.session.stdout
        code = "\n" * (block.line - 1) + block.code
        self.session.stdin.write(json.dumps([block.page, code]) + "\n")
        self.session.stdin.flush()
        return self.session.stdout.readline() == "done\n"


# Reads programs, one per line, and runs them in one namespace; their output goes to stderr.
SESSION = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
space = {"__name__": "__main__"}
for line in sys.stdin:
    page, code = json.loads(line)
    exec(compile(code, page, "exec"), space)
    print("done", file=answers, flush=True)
"""
