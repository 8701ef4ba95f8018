"""Hooks for mkdocs: pages from outside docs/, links to them, and the help of the commands."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tomllib
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {  # page of the site -> file of the repository
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/examples.md": "examples/README.md",
    "project/format.md": "export/FORMAT.md",
    "project/models.md": "examples/models/README.md",
    "project/security.md": "SECURITY.md",
    "project/tests.md": "tests/README.md",
}
COMMANDS = "reference_commands.md"
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, COMMANDS, content=commands()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository, as on GitHub, into links between pages of the site.

    If the site has no such page (a header, a folder), the link is replaced by its text.
    """
    here = page.file.src_uri
    source = OUTSIDE.get(here, f"docs/{here}")

    def link(found: re.Match[str]) -> str:
        image, text, target, anchor = found.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        to = next(
            (uri for uri, file in OUTSIDE.items() if file == path), path.removeprefix("docs/")
        )
        if files.get_file_from_path(to) is None:
            return text if (ROOT / path).exists() else found[0]
        return f"{image}[{text}]({posixpath.relpath(to, posixpath.dirname(here) or '.')}{anchor})"

    return LINK.sub(link, markdown)


def commands() -> str:
    """The help text of every command."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    with ThreadPoolExecutor() as pool:
        helps = pool.map(help_of, scripts, scripts.values())
    parts = [
        f"## {name}\n\n```text\n{text}```\n" for name, text in zip(scripts, helps, strict=True)
    ]
    return "# Commands\n\n" + "\n".join(parts)


def help_of(name: str, entry: str) -> str:
    module, _, function = entry.partition(":")
    call = f"import sys; sys.argv = [{name!r}, '--help']; from {module} import {function} as f; f()"
    return subprocess.run(
        [sys.executable, "-c", call],
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
