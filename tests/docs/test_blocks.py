"""Every shell and Python block of the README and of the user pages runs, or the page says why not."""

from __future__ import annotations

import pytest

from documented import ROOT, Reader, blocks

PAGES = sorted(
    {ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")}
)


# These pages take more than half a minute each, and other tests cover their parts; the README and the tutorials
# always run.
LONG = {f"docs/{name}.md" for name in ("analysis", "data", "export", "export_torch", "training")}


def of(page):
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=[pytest.mark.nightly] if name in LONG else [])


@pytest.mark.parametrize("page", [of(page) for page in PAGES])
def test_blocks_run(page, tmp_path):
    with Reader(tmp_path) as reader:
        for block in blocks(page):
            if block.why is None:
                reader.run(block)


READ = """\
# A
<!-- before: touch there -->
```sh
ls there
```
<!-- not run: no GPU -->

```python
x = 1
```
```python
x = 2
```
```text
no code
```
<!-- run with x for y -->
```python
assert y == 2
```
"""


def test_what_is_read_from_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(READ)
    found = list(blocks(page))
    assert [(b.language, b.line, b.why) for b in found] == [
        ("sh", 2, None),
        ("sh", 4, None),
        ("python", 9, "no GPU"),
        ("python", 12, None),
        ("python", 19, None),
    ]
    with Reader(folder(tmp_path, "read")) as reader:
        for block in found:
            reader.run(block)


def test_what_fails_is_shown(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n\nundefined\n```\n```sh\nfalse | cat\n```\n")
    python, shell = blocks(page)
    with (
        Reader(folder(tmp_path, "python")) as reader,
        pytest.raises(AssertionError, match=r'"page\.md", line 3'),
    ):
        reader.run(python)
    with (
        Reader(folder(tmp_path, "shell")) as reader,
        pytest.raises(AssertionError, match=r"page\.md:6"),
    ):
        reader.run(shell)


def folder(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name
