"""README.md agrees with the committed benchmarks and results, and with the version."""

from __future__ import annotations

import pytest

import tsm
from docs_builder import DOCS, load_builder

ROOT = DOCS.parent


@pytest.fixture(scope="module")
def builder():
    return load_builder("build_readme")


def test_tables_are_up_to_date(builder, capsys):
    assert builder.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_table_is_noticed(builder, tmp_path, monkeypatch, capsys):
    old = tmp_path / "README.md"
    old.write_text(builder.PAGE.read_text().replace("| reproduced |", "| in part |", 1))
    monkeypatch.setattr(builder, "PAGE", old)
    assert builder.main(["--check"]) == 1
    assert "python docs/build_readme.py" in capsys.readouterr().err
    assert builder.main([]) == 0
    assert builder.main(["--check"]) == 0


def test_the_drawing_is_what_its_program_draws():
    drawn = load_builder("build_pictures").idea()
    assert (DOCS / "img" / "idea.svg").read_text() == drawn, "run `python docs/build_pictures.py`"


def test_the_citation_has_the_version():
    assert f"\nversion: {tsm.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_changelog_is_what_a_user_needs():
    """Each section occurs once and is short, since a union merge may bring back removed text."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    headings = [line for line in lines if line.startswith("#")]
    assert len(set(headings)) == len(headings)
    assert {"### Numerics", "### Format"} <= set(headings)
    assert len(lines) < 80 * sum(line.startswith("## ") for line in lines)
