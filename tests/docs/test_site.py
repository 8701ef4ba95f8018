"""docs/index.md greets a reader and leads to every page; the site is searched from disk and loads nothing from
other sites."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys

import pytest

from documented import ROOT

DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text()
LINKS = re.findall(r"\[([^]]+)\]\(([^):#]+)\)", INDEX)


def test_the_index_says_what_tsm_is_before_anything_else():
    title, what, picture, *_ = INDEX.split("\n\n")
    assert title.startswith("# tsm") and what.startswith("tsm ")
    assert len(what.splitlines()) <= 3 and picture.startswith("![")


def test_the_index_asks_what_the_reader_wants_to_do():
    headings = re.findall(r"^## (.+)", INDEX, re.MULTILINE)
    assert headings[0] == "What do you want to do?"
    tasks = INDEX.split("\n## ")[1]
    names = {name.split()[0].lower() for name in re.findall(r"- \*\*\[(.+?)\]", tasks)}
    assert {"train", "look", "export", "embed", "serve", "write", "reproduce"} <= names


def test_the_index_leads_to_every_page():
    pages = {str(one.relative_to(DOCS)) for one in DOCS.rglob("*.md")} - {"index.md"}
    pages = {one for one in pages if not one.startswith("internals/benchmarks/")}
    assert len(pages) > 40 and pages <= {target for _, target in LINKS}
    assert not [name for name, _ in LINKS if name.endswith(".md")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if importlib.util.find_spec("material") is None:
        pytest.skip("no mkdocs-material: `make site` installs it")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-d", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_pages_load_nothing_from_other_sites(site):
    pages = [*site.rglob("*.html")]
    assert len(pages) > 40
    for page in pages:
        loaded = re.findall(
            r'<(?:script|img|link|iframe)[^>]*\s(?:src|href)="([^"]+)"', page.read_text()
        )
        assert len(loaded) > 3
        assert not [one for one in loaded if re.match("https?:|//", one)], page


@pytest.mark.browser
@pytest.mark.parametrize("page", ["index.html", "internals/kernels.html"])
def test_search_from_disk(site, page, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"]
    flags += ["--virtual-time-budget=20000", f"--user-data-dir={tmp_path}"]
    address = f"{(site / page).as_uri()}?q=chrono"
    done = subprocess.run([chromium, *flags, address], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    hits = re.findall(r'<a href="([^"]+)" class="md-search-result__link', done.stdout)
    assert any("cells.html" in hit for hit in hits), hits
