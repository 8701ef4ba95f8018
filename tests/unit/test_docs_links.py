"""Links in the Markdown files work, including anchors, and the paths that they name exist."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "export", "plugin", "runtime", "benchmarks", "cpp", "results")
PAGES = sorted(
    {*ROOT.glob("*.md"), ROOT / "tests" / "README.md"}
    | {page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")}
)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A path with capitals is a placeholder; INVENTED is the cell that CONTRIBUTING tells readers to write.
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)}|tests)/[a-z0-9_./-]+")
INVENTED = "lstm_steep"


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Anchors as GitHub derives them from headings; the second one with the same name ends in -1."""
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return names


def broken(page: Path) -> list[str]:
    """The broken relative links of a page."""
    found = []
    for link in LINK.findall(CODE.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):  # https:, mailto:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


def missing(page: Path) -> list[str]:
    """Paths of the source tree that a page names in backticks but that do not exist."""
    spans = [span for span in CODE.findall(prose(page)) if PATH.fullmatch(span)]
    there = [(ROOT / span).exists() or (ROOT / f"{span}.py").exists() for span in spans]
    return [s for s, found in zip(spans, there, strict=True) if not found and INVENTED not in s]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths(page):
    assert not broken(page)
    assert not missing(page)


def test_what_is_broken_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b` c\n## Twice\n## Twice\n[1](#a-b-c) [2](#twice-1) [3](#twice-2) [4](no.md)\n"
        "[5](page.md#twice) [6](https://x.org/y) `[7](z.md)` `docs/nothing.md` `docs/index.md`\n"
        "```\n[8](w.md)\n```\n"
    )
    assert broken(page) == ["#twice-2", "no.md"]
    assert missing(page) == ["docs/nothing.md"]


def test_the_index_names_every_page():
    linked = {link.partition("#")[0] for link in LINK.findall((ROOT / "docs/index.md").read_text())}
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert there - linked == {"index.md"}
