"""`tsm-reproduce next`: it picks the most valuable runs first, as many as fit into the budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tsm.plugin.reproduce.data import DataRoom
from tsm.plugin.reproduce.recipe import EXPERIMENTS, Worth
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.runs.runner import Run, finished, flags_of, perform
from tsm.plugin.reproduce.runs.schedule import (
    MEASURING,
    Item,
    Schedule,
    _done,
    estimate,
    pack,
    schedule,
)
from tsm.plugin.reproduce.store import Store, Summary

ALL = experiments()
COPY = EXPERIMENTS.get("copy")
WORDS = EXPERIMENTS.get("ptb-word")


def summary(variant, seed=1, **changes) -> Summary:
    empty = Summary(
        variant.home, variant.name, 1, True, "", 50.0, 100, 50, 0, {}, 60.0, "", "", {}, {}
    )
    return replace(empty, seed=seed, **{"origin": {"commit": "c"}, **changes})


@pytest.mark.parametrize("experiment", ALL, ids=[e.name for e in ALL])
def test_what_the_recipes_say(experiment):
    used = [experiment.worth_of(variant) for variant in experiment.variants]
    for pattern, worth in experiment.worth.items():
        assert worth in used, f"{pattern} is never the first to fit"
        assert worth.rank == 0 or worth.minutes > 0
    for variant in experiment.variants:
        owner = EXPERIMENTS.get(variant.home)
        worth = owner.worth_of(variant)
        assert worth.enough < variant.epochs or not worth.enough
        if variant.twice and worth.rank:
            first = owner.worth_of(owner.variant(variant.twice))
            assert 0 < first.rank <= worth.rank, f"{variant.name} needs {variant.twice} first"


def test_time_is_what_other_seeds_took(tmp_path):
    store, variant, worth = Store(tmp_path), WORDS.variant("baseline"), Worth(1, 7.0)
    run = Run(variant, 2, {})
    assert estimate(run, worth, store) == 7
    store.write(variant, summary(variant, complete=False))  # 50 of 100 epochs in a minute
    assert estimate(run, worth, store) == 2 + MEASURING
    assert estimate(replace(run, epochs=75), worth, store) == 1.5 + MEASURING
    assert estimate(replace(run, epochs=25), worth, store) == 1 + MEASURING
    store.write(variant, summary(variant, complete=False, of_updates=200))  # 50 updates
    assert estimate(run, worth, store) == 4 + MEASURING
    store.write(variant, summary(variant))
    assert estimate(run, worth, store) == 1 + MEASURING


def test_what_has_enough_epochs_is_done(tmp_path):
    store, variant = Store(tmp_path), WORDS.variant("baseline")
    (only,) = [replace(WORDS, variants=(variant,), pairs=())]
    room = DataRoom(tmp_path / "data", small=True)

    def planned():
        return [run.seed for run in schedule([only], None, store, room, 100, 1).runs]

    assert planned() == [1, 2, 3]
    store.write(variant, summary(variant, 1, complete=False, epochs=94.0))
    assert planned() == [1, 2, 3]
    store.write(variant, summary(variant, 1, complete=False, epochs=95.0))
    store.write(variant, summary(variant, 2))
    assert planned() == [3]


def test_runs_older_than_their_analyses_are_done_again(tmp_path):
    store, words, gates = Store(tmp_path), WORDS.variant("baseline"), COPY.variant("fast_lstm-500")
    run = Run(words, 1, {})
    enough = Worth(1, 1, enough=50)
    for changes, done in (
        ({}, True),
        ({"origin": {}}, False),
        ({"origin": {}, "details": {"bins": []}}, False),
        ({"origin": {}, "details": {"routing": {}}}, True),
    ):
        for complete in (True, False):
            store.write(words, summary(words, complete=complete, **changes))
            assert _done(run, enough, store) is done, (changes, complete)
        store.write(words, summary(words, **changes))
        assert finished(run, store) is done
    store.write(gates, summary(gates, origin={}))  # none of its measures is an analysis
    assert finished(Run(gates, 1, {}), store)


def test_seeds_that_no_verdict_needs_come_later(tmp_path):
    brackets, room = EXPERIMENTS.get("dyck2"), DataRoom(tmp_path / "data", small=True)
    found = schedule([brackets], None, Store(tmp_path), room, 10**6, 1)
    ranks = {item.run.seed: item.rank for item in found.items}
    assert len(ranks) == brackets.seeds > 3
    assert max(ranks[seed] for seed in (1, 2, 3)) < min(ranks[seed] for seed in ranks if seed > 3)


def test_runs_whose_data_is_not_here_are_left(tmp_path):
    found = schedule(ALL, range(1, 2), Store(tmp_path), DataRoom(tmp_path, tmp_path), 10**6, 4)
    assert found.runs and not any(run.variant.data for run in found.runs)
    assert all(f"data not available ({name})" in found.left for name in ("ptb", "mnist", "imdb"))


def packed(store, budget, jobs, *items, **more) -> Schedule:
    """items: (variant, rank, minutes, parts) of runs of the copy experiment."""
    made = [
        Item(Run(COPY.variant(name), 1, {}, parts=parts), rank, minutes)
        for name, rank, minutes, parts in items
    ]
    return pack(made, store, Schedule(budget, jobs), **more)


def test_small_runs_lie_beside_each_other_and_wide_ones_alone(tmp_path):
    store = Store(tmp_path)
    items = (
        ("plstm-200", 1, 4.0, 0),
        ("plstm-500", 1, 3.0, 1),
        ("plstm-1000", 2, 4.0, 0),
        ("plstm-200-float32", 3, 2.0, 0),
    )
    found = packed(store, 7.0, 2, *items)
    assert [item.rank for item in found.items] == [1, 1, 2] and found.minutes == 7
    assert found.items[0].run.parts == 1, "of two groups with the same rank the wide one"
    assert found.left == {"too long": 1}
    assert len(packed(store, 9.0, 2, *items).items) == 4
    assert len(packed(store, 7.0, 3, *items).items) == 4
    assert [item.rank for item in packed(store, 7.0, 1, *items).items] == [1, 1]
    assert packed(store, 1.0, 2, *items).items == []
    small_first = packed(store, 9.0, 2, items[0], ("plstm-500", 2, 3.0, 1))
    assert small_first.items[0].run.parts == 0


def test_twice_comes_after_the_other(tmp_path):
    store = Store(tmp_path)
    first, second = ("plstm-200", 1, 4.0, 0), ("lstm-200", 1, 4.0, 0)
    assert packed(store, 8.0, 2, first, second).minutes == 8
    assert packed(store, 7.0, 2, first, second).left == {"too long": 1}
    assert packed(store, 8.0, 2, second).left == {"another run is needed first": 1}
    assert len(packed(store, 8.0, 2, second, smoke=True).items) == 1
    store.write(COPY.variant("plstm-200"), summary(COPY.variant("plstm-200")))
    assert packed(store, 7.0, 2, second).minutes == 4


def test_runs_on_parts_of_the_gpu_share_their_lanes_only(tmp_path):
    halves = [(f"plstm-{name}", 1, 4.0, 2) for name in ("200", "500", "1000")]
    found = packed(Store(tmp_path), 12.0, 4, *halves, ("plstm-200-float32", 2, 3.0, 0))
    assert found.minutes == 4 + 4 + 3 and "2 at once" in found.text()
    assert [item.run.parts for item in found.items] == [2, 2, 2, 0]
    assert packed(Store(tmp_path), 7.0, 4, *halves).left == {"too long": 1}


def test_without_a_divided_gpu_such_runs_are_alone(tmp_path):
    room = DataRoom(tmp_path / "data", small=True)
    images = EXPERIMENTS.get("psmnist-pl")
    most = {v.name: images.worth_of(v).parts for v in images.variants}
    assert max(most.values()) > 1
    for divides, jobs in ((False, 4), (True, 4), (True, 2), (True, 1)):
        made = schedule([images], range(1, 2), Store(tmp_path), room, 99, jobs, divides=divides)
        parts = {run.variant.name: run.parts for run in made.runs}
        limit = jobs if divides else 1
        assert parts == {name: min(count, limit) for name, count in most.items()}


def test_a_run_ends_after_its_own_epochs(room):
    run = replace(room.run(), epochs=1)
    found = perform(run, room.conditions(epochs=3), say=lambda text: None).summary
    assert found.epochs == 1 and not found.complete
    assert flags_of(run, room.conditions(epochs=3)) == ("--epochs", "1")


def test_the_command(command, tmp_path):
    words = ("next", "--budget", "5", "--smoke", "--cpu", "--variants", "plstm-200*")
    code, printed = command(*words, "--dry-run")
    assert code == 0 and printed.startswith("rank minutes")
    assert "copy/plstm-200 seed 1\n" in printed and not (tmp_path / "results" / "copy").exists()
    code, printed = command(*words)
    assert code == 0 and "copy/plstm-200 seed 1: done" in printed
    assert printed.index("rank minutes") < printed.index("done")
    assert (tmp_path / "results" / "copy" / "plstm-200-seed1.json").is_file()
    code, printed = command(*words)
    assert code == 0 and "seed 1" not in printed
