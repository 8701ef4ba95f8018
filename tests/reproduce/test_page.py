"""docs/results.md matches the committed summaries, and says where runs fall short of the recipe."""

from __future__ import annotations

import dataclasses
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tsm.plugin.analysis.catalogue import about_all
from tsm.plugin.reproduce.drawings import DRAWINGS
from tsm.plugin.reproduce.figures import draw, drawable, figure_name, stamp
from tsm.plugin.reproduce.page import WITHOUT_RECIPE, beyond, page, section
from tsm.plugin.reproduce.paired import far_apart, mean_and_error
from tsm.plugin.reproduce.recipe import EXPERIMENTS, Experiment, Metric
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.rows import difference, row_of
from tsm.plugin.reproduce.runs.runner import perform
from tsm.plugin.reproduce.store import Store
from tsm.plugin.reproduce.tables import markdown, screen

ROOT = Path(__file__).parents[2]
COMMITTED = Store(ROOT / "results")
FIGURES = [(e, kind) for e in experiments() for kind in drawable(e, COMMITTED)]


def test_the_page_is_up_to_date():
    found = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert found == page(COMMITTED, experiments()), "docs/results.md is stale: tsm-reproduce page"


def test_the_other_page_is_up_to_date():
    found = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
    assert found == beyond(COMMITTED, experiments()), "docs/beyond.md is stale: tsm-reproduce page"


def test_an_experiment_is_on_one_page_and_what_no_paper_asks_has_a_hypothesis():
    both = [page(COMMITTED, experiments()), beyond(COMMITTED, experiments())]
    for experiment in experiments():
        heading = f"\n## {experiment.name}\n"
        assert [heading in text for text in both] == [
            experiment.page == "results",
            experiment.page == "beyond",
        ]
        assert bool(experiment.hypothesis) == (experiment.page == "beyond")
    assert "published" not in both[1]


def test_what_has_no_recipe_names_analyses_that_exist():
    names = {name for name in WITHOUT_RECIPE.values() if name}
    assert names and names <= {about.name for about in about_all()}
    text = page(COMMITTED, experiments())
    assert all(f"\n- {what}" in text for what in WITHOUT_RECIPE)


def test_every_figure_is_there_and_none_is_left_over():
    wanted = {figure_name(e, kind) for e, kind in FIGURES}
    assert {path.name for path in (ROOT / "docs" / "img").glob("results_*.png")} == wanted


def text_chunks(path: Path) -> dict[str, str]:
    """The text chunks of a PNG file."""
    data, at, found = path.read_bytes(), 8, {}
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"tEXt":
            name, _, text = data[at + 8 : at + 8 + size].partition(b"\0")
            found[name.decode()] = text.decode()
        at += size + 12
    return found


@pytest.mark.parametrize(
    "experiment, kind", FIGURES, ids=[f"{e.name}-{kind}" for e, kind in FIGURES]
)
def test_no_figure_is_stale(experiment, kind):
    found = text_chunks(ROOT / "docs" / "img" / figure_name(experiment, kind))
    assert found["Description"] == stamp(experiment, kind, COMMITTED), "stale: tsm-reproduce page"


def test_every_committed_summary_is_of_a_recipe():
    known = {
        COMMITTED.path(v, s.seed)
        for e in experiments()
        for v in e.variants
        for s in COMMITTED.all_of(v)
    }
    assert set(COMMITTED.root.glob("*/*.json")) == known
    for path in known:
        # Scores of 825 sequences take 12 kB, percentiles of all gates 10, other analyses 12.
        assert path.stat().st_size < 50_000, path
        assert not re.search(r'"/|/home/|/tmp/', path.read_text()), f"{path} names a folder"


def test_checkpoints_are_not_committed():
    if shutil.which("git") is None:
        pytest.skip("needs git")
    listed = subprocess.run(
        ["git", "ls-files", "results"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert all(name.endswith(".json") for name in listed.stdout.split())


@pytest.fixture
def measured(room):
    """An experiment with two variants: the first was run with two of three seeds, the second with one; one run
    was cut short."""
    first = room.run(published={"test_accuracy": 0.5}, spread={"test_accuracy": 0.02})
    other = room.run(name="other", label="other", shortened="half the data")
    perform(first, room.conditions(), say=print)
    perform(room.run(2, published={"test_accuracy": 0.5}), room.conditions(epochs=3), say=print)
    perform(other, room.conditions(), say=print)
    return Experiment(
        "tiny",
        "Tiny",
        "nobody",
        "A recipe.",
        (first.variant, other.variant),
        (Metric("test_accuracy", "accuracy, %", 100, 1),),
        seeds=3,
        pairs=(("plstm-5", "other"),),
        notes=("A note.",),
        figures=("curves",),
    )


def test_rows_say_what_is_less_than_the_recipe(measured, room):
    runs = [room.store.all_of(variant) for variant in measured.variants]
    first, other = (row_of(measured, v, r) for v, r in zip(measured.variants, runs, strict=True))
    values = [run.metrics["test_accuracy"] for run in runs[0]]
    mean, error = mean_and_error(values)
    spread = f"{100 * mean:.1f} ± {100 * error:.1f}"
    apart = "seeds far apart: " + ", ".join(f"{100 * value:.1f}" for value in values)
    assert first.published == ("50.0 ± 2.0",)
    assert first.measured == (apart if far_apart(values) else spread,)
    assert first.seeds == "2 of 3" and first.epochs == "3 to 4 of 4"
    assert "fewer seeds" in first.remarks and "fewer epochs" in first.remarks
    assert "1 of 2 runs" in first.remarks
    assert other.remarks == "fewer seeds than the recipe; half the data"
    assert other.published == ("-",) and "±" not in other.measured[0]
    assert "float32" in first.machine
    fewer_asked = dataclasses.replace(measured, seeds=1)
    assert row_of(fewer_asked, measured.variants[0], runs[0]).seeds == "2"


def test_rows_name_the_commit(measured, room):
    variant, (run,) = measured.variants[1], room.store.all_of(measured.variants[1])

    def commits(*names):
        runs = [dataclasses.replace(run, seed=i, origin=o) for i, o in enumerate(names, 1)]
        return row_of(measured, variant, runs).commits

    known, changed = {"commit": "0123456789abcdef"}, {"commit": "fedcba9876543210+"}
    assert commits(known, known) == "0123456"
    assert commits(known, changed, {}) == "0123456, fedcba9+, none"


def test_a_run_that_was_stopped_before_its_test_is_named(measured, room):
    variant, (run,) = measured.variants[1], room.store.all_of(measured.variants[1])
    begun = dataclasses.replace(run, seed=2, metrics={}, complete=False, epochs=1.5)
    assert row_of(measured, variant, [begun]).remarks == (
        "stopped before the test (1.5 of 4); half the data"
    )
    assert (
        "1 more stopped before the test (1.5 of 4)"
        in row_of(measured, variant, [run, begun]).remarks
    )


def test_intervals_are_means_and_seeds_far_apart_are_named(measured, room):
    variant, (run,) = measured.variants[1], room.store.all_of(measured.variants[1])
    metric = dataclasses.replace(measured.metrics[0], low="low", high="high")
    measured = dataclasses.replace(measured, metrics=(metric,))

    def row(*accuracies):
        runs = [
            dataclasses.replace(
                run, seed=seed, metrics={"test_accuracy": a, "low": a - 0.1, "high": a + 0.2}
            )
            for seed, a in enumerate(accuracies, 1)
        ]
        return row_of(measured, variant, runs)

    assert row(0.5).measured == ("50.0 (40.0 to 70.0)",)
    assert row(0.4, 0.6).measured == ("seeds far apart: 40.0, 60.0 (40.0 to 70.0)",)
    assert row(0.49, 0.51).measured == ("50.0 ± 1.0 (40.0 to 70.0)",)


def test_section_and_screen(measured, room):
    text = "\n".join(section(measured, room.store))
    table = markdown(measured, room.store)
    assert all(line in text for line in table) and len(table) == 4
    assert len({line.count("|") for line in table}) == 1
    assert "A note." in text and f"img/{figure_name(measured, measured.figures[0])}" in text
    assert "plstm-5 - other" in text and "plstm-5 - other" in screen(measured, room.store)


def test_an_experiment_without_runs_says_so(tmp_path):
    empty = Store(tmp_path)
    for experiment in experiments():
        rows = markdown(experiment, empty)[2:]
        assert len(rows) == len(experiment.variants)
        for row, variant in zip(rows, experiment.variants, strict=True):
            why = f"not run: {variant.hindered}" if variant.hindered else "not run yet"
            assert why in row
        assert not drawable(experiment, empty)
        assert "nothing has been measured" in screen(experiment, empty)


def test_the_difference_is_over_the_seeds_that_both_have(measured, room):
    a, b = (room.store.all_of(variant) for variant in measured.variants)
    gap = 100 * (a[0].metrics["test_accuracy"] - b[0].metrics["test_accuracy"])
    found = difference(measured, ("plstm-5", "other"), room.store)
    assert found == f"plstm-5 - other, accuracy, %: {gap:+.1f} (1 seed)"
    known = dataclasses.replace(measured.variants[1], published={"test_accuracy": 0.25})
    told = dataclasses.replace(measured, variants=(measured.variants[0], known))
    found = difference(told, ("plstm-5", "other"), room.store)
    assert found is not None and found.endswith("(1 seed; published +25.0)")


def test_mean_and_error():
    assert mean_and_error([2.0]) == (2.0, None)
    assert mean_and_error([1.0, 3.0]) == (2.0, 1.0)


def test_a_figure_is_drawn(measured, room, tmp_path):
    (kind,) = drawable(measured, room.store)
    path = draw(measured, kind, room.store, tmp_path)
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    before = stamp(measured, kind, room.store)
    assert text_chunks(path)["Description"] == before
    room.store.path(measured.variants[1], 1).unlink()
    assert stamp(measured, kind, room.store) != before


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWINGS.names())
def test_every_kind_of_figure(kind, command, tmp_path):
    experiment = next(EXPERIMENTS.get(n) for n in EXPERIMENTS if kind in EXPERIMENTS.get(n).figures)
    few = dataclasses.replace(experiment, variants=experiment.variants[:1], pairs=())
    code, printed = command(few.name, "--smoke", "--cpu", "--variants", few.variants[0].name)
    assert code == 0, printed
    path = draw(experiment, kind, Store(tmp_path / "results"), tmp_path)
    assert path.stat().st_size > 5_000
