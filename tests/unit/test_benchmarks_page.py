"""docs/internals/benchmarks/README.md agrees with the committed JSON, including missed goals."""

from __future__ import annotations

import json

import pytest

from docs_builder import DOCS, load_builder

RUNS = sorted((DOCS / "internals" / "benchmarks").glob("*.json"))


@pytest.fixture(scope="module")
def builder():
    return load_builder("build_benchmarks")


def test_page_is_up_to_date(builder, capsys):
    assert builder.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_page_is_noticed(builder, tmp_path, monkeypatch, capsys):
    old = tmp_path / "README.md"
    old.write_text(builder.PAGE.read_text().replace("x  met\n", "x  NOT met\n", 1))
    monkeypatch.setattr(builder, "PAGE", old)
    assert builder.main(["--check"]) == 1
    assert "python docs/build_benchmarks.py" in capsys.readouterr().err
    assert builder.main([]) == 0
    assert builder.main(["--check"]) == 0


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.stem)
def test_every_run_and_every_missed_goal_is_shown(run):
    text = (DOCS / "internals" / "benchmarks" / "README.md").read_text()
    (section,) = (part for part in text.split("\n## ") if f"`{run.name}`" in part)
    lines = section.splitlines()
    for goal in json.loads(run.read_text())["goals"]:
        shown = [line for line in lines if line.startswith(goal["text"] + " ")]
        assert shown and all(("NOT met" in line) != goal["met"] for line in shown), goal["text"]
