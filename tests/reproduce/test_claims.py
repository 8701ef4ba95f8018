"""Verdicts follow from the summaries: a model is ahead, a value is reached, or there are too few runs."""

from __future__ import annotations

import dataclasses

import pytest

from tsm.plugin.reproduce.claims import (
    CLAIMS,
    FAILS,
    HOLDS,
    OPEN,
    PAPERS,
    Ahead,
    Claim,
    Judged,
    Reaches,
    claims_table,
)
from tsm.plugin.reproduce.recipe import EXPERIMENTS
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store, Summary

HOME, A, B = "imdb", "plstm-fixed-clip", "lstm-fixed-clip"
EMPTY = Summary(HOME, A, 1, True, "", 20.0, 20, 1, 0, {}, 1.0, "", "", {}, {})


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def put(store: Store, variant: str, *accuracies: float, complete: bool = True) -> None:
    for seed, value in enumerate(accuracies, 1):
        metrics = {"test_accuracy": value}
        values = {"variant": variant, "seed": seed, "metrics": metrics, "complete": complete}
        known = EXPERIMENTS.get(HOME).variant(variant)
        store.write(known, dataclasses.replace(EMPTY, **values))


def test_ahead_needs_runs_seeds_and_an_interval_without_zero(store):
    rule = Ahead(HOME, A, B)
    assert rule(store) == Judged(OPEN, f"{A} - {B}: no common runs")
    put(store, B, 0.80, 0.81, 0.82)
    put(store, A, 0.85, 0.86)
    assert rule(store).state == OPEN
    put(store, A, 0.85, 0.86, 0.87)
    assert rule(store) == Judged(HOLDS, f"{A} - {B}: +5.00 ± 0.00 (test accuracy, %, 3 seeds)")
    assert dataclasses.replace(rule, less=True)(store).state == FAILS
    put(store, A, 0.83, 0.86, 0.90)  # +5.3 ± 1.5: 3.7 standard errors, not enough with three seeds
    assert rule(store) == Judged(
        OPEN, f"{A} - {B}: +5.33 ± 1.45 (test accuracy, %, 3 seeds), undecided"
    )
    put(store, A, 0.75, 0.76, 0.78)
    assert rule(store).state == FAILS
    with pytest.raises(ValueError, match="no metric 'odd'"):
        Ahead(HOME, A, B, "odd")(store)
    put(store, A, 0.85, 0.86, 0.87, complete=False)
    assert "shortened" in rule(store).phrase


def test_a_level_that_no_run_reached_is_not_a_missing_run(store):
    rule = Ahead("copy", "fast_lstm-500", "sigmoid-500", "updates_to_90", less=True)
    for name in ("fast_lstm-500", "sigmoid-500"):
        for seed in (1, 2):
            made = dataclasses.replace(EMPTY, home="copy", variant=name, seed=seed)
            store.write(EXPERIMENTS.get("copy").variant(name), made)
    name = "fast_lstm-500 - sigmoid-500"
    assert rule(store) == Judged(OPEN, f"{name}: no seed of 2 has updates to 90% in both")


def test_one_seed_counts_where_a_rule_says_so(store):
    put(store, A, 0.85)
    put(store, B, 0.80)
    assert Ahead(HOME, A, B, seeds=1)(store).state == HOLDS
    assert Ahead(HOME, B, A, seeds=1)(store).state == FAILS


def test_reaching_is_for_every_seed(store):
    rule = Reaches(HOME, A, 0.85)
    assert rule(store).state == OPEN
    put(store, A, 0.85, 0.86, 0.87)
    assert rule(store).state == HOLDS
    put(store, A, 0.85, 0.84, 0.87, complete=False)
    assert rule(store).state == FAILS and "shortened" in rule(store).phrase
    assert Reaches(HOME, A, 0.90, less=True)(store).state == HOLDS


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ((HOLDS, HOLDS), "reproduced"),
        ((HOLDS, FAILS), "in part"),
        ((FAILS, FAILS), "not reproduced"),
        ((FAILS, OPEN), "not reproduced"),
        ((HOLDS, OPEN), "open"),
        ((), "open"),
    ],
)
def test_verdicts(store, states, verdict):
    def rule(state):
        return lambda found: Judged(state, state)

    assert Claim("it is so", "PL 1", tuple(map(rule, states))).verdict(store)[0] == verdict


def test_every_claim_names_runs_that_recipes_have(store):
    assert experiments() and CLAIMS
    for claim in CLAIMS:
        assert claim.source.split()[0] in PAPERS
        assert claim.verdict(store)[0] == "open"
    assert len(claims_table(store)) == 2 + len(CLAIMS)
