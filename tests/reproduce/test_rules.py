"""Rules against made-up summaries with known answers: comparisons.py and limits.py."""

from __future__ import annotations

import dataclasses

import pytest

from tsm.plugin.reproduce.comparisons import Ahead
from tsm.plugin.reproduce.judged import FAILS, HOLDS, OPEN, SAME
from tsm.plugin.reproduce.limits import Between, Mean
from tsm.plugin.reproduce.quantities import DIVERGED
from tsm.plugin.reproduce.recipe import EXPERIMENTS
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store, Summary

assert experiments()
A, B = "plstm-fixed-clip", "lstm-fixed-clip"  # published: 88.1 and 86.8
EMPTY = Summary("", "", 1, True, "", 20.0, 20, 1, 0, {}, 1.0, "", "", {}, {})


class Runs:
    """Writes the runs of an experiment, one value per seed."""

    def __init__(self, folder, home: str, key: str) -> None:
        self.store, self.home, self.key = Store(folder), home, key

    def put(self, name: str, *values: float | None, **more) -> None:
        variant = EXPERIMENTS.get(self.home).variant(name)
        for seed, value in enumerate(values, 1):
            metrics = {} if value is None else {self.key: value}
            changes = {"variant": name, "seed": seed, "metrics": metrics, **more}
            run = dataclasses.replace(EMPTY, home=self.home, **changes)
            self.store.write(variant, run)


@pytest.fixture
def reviews(tmp_path):
    return Runs(tmp_path, "imdb", "test_accuracy")


def test_no_difference_means_less_than_the_stated_margin_or_half_of_the_published_one(reviews):
    rule = Ahead("imdb", A, B)  # half: .65 points
    reviews.put(B, 0.880, 0.882, 0.884)
    reviews.put(A, 0.881, 0.882, 0.883)  # +.1, 0, -.1
    found = rule(reviews.store)
    assert (found.state, found.limit) == (SAME, "within ±0.25")
    assert found.phrase.endswith("+0.00 ± 0.06, no difference found, within ±0.25")
    reviews.put(A, 0.883, 0.882, 0.881)  # +.3, 0, -.3
    found = rule(reviews.store)
    assert (found.state, found.limit) == (OPEN, "")
    assert found.phrase.endswith("undecided, within ±0.75")
    assert dataclasses.replace(rule, margin=0.01)(reviews.store).state == SAME, "stated: 1 point"
    assert dataclasses.replace(rule, margin=0.007)(reviews.store).state == OPEN
    reviews.put("chrono_lstm-fixed-clip", 0.880, 0.882, 0.884)
    reviews.put("chrono_lstm-fixed-clip-tmax20", 0.881, 0.882, 0.883)
    alike = Ahead("imdb", "chrono_lstm-fixed-clip", "chrono_lstm-fixed-clip-tmax20")
    assert alike(reviews.store).state == OPEN, "both have the same published number"
    assert dataclasses.replace(alike, margin=0.005)(reviews.store).state == SAME


def test_a_decided_difference_is_one_however_small(reviews):
    reviews.put(B, 0.880, 0.882, 0.884)
    reviews.put(A, 0.881, 0.883, 0.885)
    assert Ahead("imdb", A, B)(reviews.store).state == HOLDS
    assert Ahead("imdb", B, A)(reviews.store).state == FAILS


def test_without_a_published_difference_the_rule_states_the_margin(tmp_path):
    runs = Runs(tmp_path, "adding", "test_loss")
    runs.put("fast_lstm", 0.070, 0.071, 0.072)
    runs.put("sigmoid", 0.071, 0.071, 0.071)
    rule = Ahead("adding", "fast_lstm", "sigmoid", less=True)
    assert rule(runs.store).state == OPEN
    assert dataclasses.replace(rule, margin=0.01)(runs.store).state == SAME
    assert dataclasses.replace(rule, margin=0.001)(runs.store).state == OPEN
    runs.put("fast_lstm", 0.070, 0.071)
    (runs.store.root / "adding" / "fast_lstm-seed3.json").unlink()
    found = dataclasses.replace(rule, margin=1.0)(runs.store)
    assert found.state == OPEN and found.phrase.endswith(", too few seeds")


def test_bounds_never_show_that_there_is_no_difference(tmp_path):
    runs = Runs(tmp_path, "copy", "updates_to_90")
    history = [{"update": 900}]
    runs.put("plstm-200", 100, 101, 102, history=history)
    runs.put("chrono_lstm-200", 100, 101, 102, history=history)
    rule = Ahead("copy", "plstm-200", "chrono_lstm-200", "updates_to_90", less=True, margin=5000)
    assert rule(runs.store).state == SAME
    variant = EXPERIMENTS.get("copy").variant("chrono_lstm-200")
    late = dataclasses.replace(
        EMPTY, home="copy", seed=3, metrics={"valid_accuracy": 0.5}, history=history
    )
    runs.store.write(variant, dataclasses.replace(late, variant=variant.name))
    found = rule(runs.store)
    assert found.state == OPEN and found.phrase.endswith(", undecided, below 0 in 1 of 3")


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        ((0.88, 0.87, 0.89), HOLDS),
        ((0.78, 0.77, 0.79), FAILS),
        ((0.98, 0.97, 0.99), FAILS),
        ((0.93, 0.92, 0.94), OPEN),
        ((0.80, 0.95, 0.90), OPEN),
        ((0.78, 0.77), OPEN),
    ],
)
def test_comparable_models_differ_by_less_than_the_margin(reviews, seconds, state):
    reviews.put(A, 0.881, 0.872, 0.889)
    reviews.put(B, *seconds)
    assert Mean("imdb", A, "", -0.05, 0.05, B)(reviews.store).state == state


def test_bounds_have_no_mean(tmp_path):
    runs, late = Runs(tmp_path, "copy", "updates_to_90"), {"valid_accuracy": 0.5}
    runs.put("plstm-200", 100, 101, 102, history=[{"update": 900}])
    runs.put("lstm-200", 200, 201, 202, history=[{"update": 900}])
    rule = Mean("copy", "plstm-200", "updates_to_90", high=0.0, other="lstm-200")
    assert rule(runs.store).state == HOLDS
    runs.put("lstm-200", 0, metrics=late, history=[{"update": 900}])
    found = rule(runs.store)
    assert found.state == OPEN and found.phrase.endswith("below -800, -100, -100, undecided")


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ((0.10, 0.14, 0.12), HOLDS),
        ((-0.10, -0.14, -0.12), FAILS),
        ((0.10, 0.50, -0.12), OPEN),
        ((0.10, 0.11), OPEN),
        ((None, 0.10, 0.14, 0.12), HOLDS),  # a run that was not measured says nothing
        ((None, None, None), OPEN),
    ],
)
def test_the_mean_must_lie_above_its_limit(reviews, values, state):
    reviews.put(A, *values)
    assert Mean("imdb", A, low=0.0)(reviews.store).state == state


def test_the_mean_shows_its_interval(reviews):
    reviews.put(A, 0.1, 0.2, 0.3)
    assert Mean("imdb", A, low=0.0)(reviews.store).phrase.endswith(
        "10.00, 20.00, 30.00, mean within -4.84 and 44.84, undecided"
    )
    assert Mean("imdb", A, high=0.5)(reviews.store).state == HOLDS


NAN = "diverged: the gradient norm is nan"


def test_runs_that_diverge_or_do_not(tmp_path):
    runs = Runs(tmp_path, "adding", "test_loss")
    expected = Between("adding", "nru", DIVERGED, low=1)
    against = Between("adding", "nru", DIVERGED, high=0)
    assert not expected(runs.store).runs
    runs.put("nru", None, None, stopped=NAN)
    assert expected(runs.store).state == against(runs.store).state == OPEN
    runs.put("nru", None, None, None, stopped=NAN)
    assert (expected(runs.store).state, against(runs.store).state) == (HOLDS, FAILS)
    runs.put("nru", 0.1, 0.1)
    assert expected(runs.store).state == against(runs.store).state == FAILS
    runs.put("nru", 0.1, 0.1, 0.1)
    assert (expected(runs.store).state, against(runs.store).state) == (FAILS, HOLDS)
    runs.put("nru", 0.1, complete=False, epochs=1.0)  # it may still diverge
    assert against(runs.store).state == OPEN


def test_models_that_guess_are_not_compared(tmp_path):
    """Adding: always answering 1 gives .1667, and the margin is a tenth of it."""
    runs = Runs(tmp_path, "adding", "test_loss")
    rule = Ahead("adding", "fast_lstm", "sigmoid", less=True, margin=0.0167)
    runs.put("sigmoid", 0.171, 0.171, 0.171)
    for guessing in ((0.170, 0.171, 0.172), (0.165, 0.1651, 0.1652), (0.181, 0.1811, 0.1812)):
        runs.put("fast_lstm", *guessing)  # the same, ahead, and behind
        found = rule(runs.store)
        assert found.state == OPEN and found.phrase.endswith(", neither learned")
    runs.put("fast_lstm", 0.010, 0.011, 0.012)
    assert rule(runs.store).state == HOLDS
    assert dataclasses.replace(rule, first="sigmoid", second="fast_lstm")(runs.store).state == FAILS
    runs.put("sigmoid", 0.011, 0.011, 0.011)
    assert rule(runs.store).state == SAME
