"""The rules of the claims take their numbers from the stored analyses, and a rule judges every seed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.analysis.learned_p import LearnedP
from tsm.plugin.analysis.reference_times import ReferenceTimes
from tsm.plugin.analysis.routing import Routing
from tsm.plugin.analysis.timescale_fit import TimescaleFit
from tsm.plugin.analysis.unit_ablation import UnitAblation
from tsm.plugin.reproduce.claims import CLAIMS
from tsm.plugin.reproduce.comparisons import Ahead
from tsm.plugin.reproduce.judged import FAILS, HOLDS, OPEN, Judged
from tsm.plugin.reproduce.limits import Between
from tsm.plugin.reproduce.measures.analyses import ANALYSES
from tsm.plugin.reproduce.quantities import (
    CENTRE,
    EXPONENT,
    FAR_BRACKETS,
    FIT,
    LEARNED,
    LONG_REVIEWS,
    LONGER,
    NEED,
    SHAPE,
    SHARE_LEFT,
    SHORTER,
    WAITING,
    WAITING_EXPONENT,
    WORST,
    accuracy_by,
    harmed_most,
    log_ratio,
    published_of,
    routing,
)
from tsm.plugin.reproduce.recipe import ELSEWHERE
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store, Summary

EMPTY = Summary("copy", "plstm-200", 1, True, "", 1.0, 1, 1, 0, {}, 1.0, "", "", {}, {})
LATER = np.array([True, False, False, False, False])
RARE, COMMON = "<100", ">=10K"


def having(**details) -> Summary:
    return dataclasses.replace(EMPTY, details=details)


def fit(alpha: float, mean: float) -> TimescaleFit:
    grid = np.array([1.0])
    return TimescaleFit("m", grid, grid, grid, grid, grid, 0.1, 1.4, alpha, 0.5, mean)


def routed(rare: list[float]) -> Routing:
    ratios = np.array([[value, 1.0 - i] for i, value in enumerate(rare)])
    times = np.array([30.0, 20.0, 10.0])
    return Routing("m", 2, 50, times, [RARE, COMMON], np.ones(2), np.ones(2), ratios)


@pytest.mark.parametrize(
    "quantity, finding, value",
    [
        (WAITING, ReferenceTimes("m", 1, 10, 0.5, 8, LATER, []), 0.2),
        (EXPONENT, LearnedP("m", True, [np.array([0.9]), np.array([0.2, 0.4])], 2, None), 0.3),
        (FIT, fit(0.1, 0.3), 0.2),
        (SHAPE, fit(0.1, 0.3), 1.4),
        (CENTRE, fit(0.1, 0.3), 0.5),
        (
            WAITING_EXPONENT,
            LearnedP("m", True, [np.array([0.2, 0.5, 0.7, 0.6, 0.6])], 1, LATER),
            -0.4,
        ),
        (WAITING_EXPONENT, LearnedP("m", True, [np.array([0.2])], 1, None), None),
        (harmed_most(RARE), routed([1.1, 1.3, 1.2]), 20.0),
        (harmed_most(RARE), routed([1.1, np.nan, 1.2]), None),
        (routing(RARE), routed([1.3, 1.2, 1.1]), 1.0),
        (routing(COMMON), routed([1.3, 1.2, 1.1]), 1.0),
        (routing(RARE), routed([1.1, 1.2, 1.3]), -1.0),
        (routing(RARE), routed([1.1, np.nan, 1.3]), None),
    ],
)
def test_a_number_comes_out_of_what_a_summary_keeps(quantity, finding, value):
    assert quantity.detail in ANALYSES
    found = quantity.of(having(**{quantity.detail: {"text": "", "numbers": finding.numbers()}}))
    assert found == (None if value is None else pytest.approx(value))
    assert quantity.of(EMPTY) is None


COUNTS = np.arange(0, 40, 5)
RANDOM = np.array([[1.0, 0.8, 0.6, 0.4, 0.3, 0.2, 0.1, 0.0], [0.6, 0.4, 0.2, 0, 0, 0, 0, 0.1]])
FIRST = np.array([0.8, 0.1, 0.2, 0.9, 0.9, 0.9, 0.9, 0.9])


@pytest.mark.parametrize(
    ("first", "waiting", "value"),
    [(FIRST, 12, 0.35), (FIRST, 5, 0.5), (FIRST, 4, None), (FIRST, 0, None), (None, 12, None)],
)
def test_the_need_for_waiting_units_counts_to_their_number(first, waiting, value):
    """Beyond it, units that do not wait are silenced; with none silenced, nothing differs."""
    name = None if first is None else "late"
    ablation = UnitAblation("m", 1, 5, "accuracy", COUNTS, RANDOM, name, first)
    both = {
        "unit-ablation": {"text": "", "numbers": ablation.numbers()},
        "reference-times": {"text": "", "numbers": {"later": [True] * waiting + [False] * 9}},
    }
    found = NEED.of(having(**both))
    assert found == (None if value is None else pytest.approx(value))
    assert NEED.of(having(**{"unit-ablation": both["unit-ablation"]})) is None


def test_the_need_is_measured_at_every_fifth_number_as_its_label_says():
    committed = Store(Path(__file__).parents[2] / "results")
    runs = [
        run
        for name in ("plstm-200", "plstm-500")
        for run in committed.all_of(experiments("copy")[0].variant(name))
    ]
    assert runs and "for 5, 10, ... up to as many as wait" in NEED.label
    for run in runs:
        silenced = run.details["unit-ablation"]["numbers"]["silenced"]
        assert silenced == list(range(0, silenced[-1] + 1, 5))


def test_words_of_medium_frequency_are_judged_as_printed():
    """5 to 10 steps, in both bins of medium frequency."""
    (claim,) = (claim for claim in CLAIMS if claim.text.startswith("Words of medium frequency"))
    limits = [(rule.key.label, rule.low, rule.high) for rule in claim.rules]
    assert limits == [(harmed_most(bin).label, 5, 10) for bin in ("[1K,10K)", "[100,1K)")]


def test_the_share_left_is_relative_and_leaves_out_many_units():
    ablation = UnitAblation("m", 1, 5, "accuracy", COUNTS, RANDOM, None, None)
    details = {"unit-ablation": {"text": "", "numbers": ablation.numbers()}}
    assert SHARE_LEFT.of(having(**details)) == pytest.approx(3.0 / 12 / 0.8)


def test_far_brackets_are_those_from_75_on():
    def row(low, sequences, accuracy):
        return {"low": low, "high": low + 24, "sequences": sequences, "accuracy": accuracy}

    rows = [row(50, 50, 0.1), row(75, 10, 0.8), row(100, 30, 0.4)]
    assert FAR_BRACKETS.of(having(by_reach=rows)) == pytest.approx(0.5)
    assert FAR_BRACKETS.of(having(by_reach=rows[:1])) is None


def test_other_lengths_are_grouped_and_all_must_be_there():
    accuracies = {f"accuracy_at_{T}": 1 / T for T in ELSEWHERE}
    run = dataclasses.replace(EMPTY, metrics={**accuracies, "test_accuracy": LEARNED})
    assert SHORTER.of(run) == pytest.approx((1 / 50 + 1 / 100) / 2)
    longer = [1 / T for T in ELSEWHERE if T > 200]
    assert LONGER.of(run) == pytest.approx(sum(longer) / len(longer))
    assert WORST.of(run) == pytest.approx(1 / 2000)
    run.metrics["test_accuracy"] = LEARNED - 0.001  # it says nothing of models that have learned
    assert WORST.of(run) is None
    run.metrics["test_accuracy"] = LEARNED
    del run.metrics["accuracy_at_2000"]
    assert WORST.of(run) is None and SHORTER.of(run) is not None
    assert published_of(experiments("copy")[0].variant("plstm-200"), WORST) is None


def test_the_accuracy_within_some_epochs_is_the_best_until_then():
    rows = [{"epoch": e, "accuracy": a} for e, a in ((1, 0.1), (150, 0.4), (200, 0.3), (201, 0.9))]
    assert accuracy_by(200).of(dataclasses.replace(EMPTY, history=rows)) == 0.4
    assert accuracy_by(200).of(dataclasses.replace(EMPTY, history=rows[3:])) is None
    assert accuracy_by(200).of(EMPTY) is None


def test_published_values_of_metrics_and_of_what_follows_from_them():
    bins = experiments("frequency-bins")[0]
    one, other = bins.metrics[3], bins.metrics[0]
    variant = bins.variant("baseline")
    assert published_of(variant, one) == 2069.81
    assert published_of(variant, log_ratio(one, other)) == pytest.approx(np.log(2069.81 / 6.59))
    assert published_of(variant, LONG_REVIEWS) is None
    assert published_of(experiments("copy")[0].variant("plstm-200"), one) is None
    words = experiments("copy")[0]
    assert published_of(words.variant("plstm-200"), words.metrics[0]) is None  # it says "learned"


def test_long_reviews_are_those_over_150_words():
    def row(label, sequences, accuracy):
        return {"label": label, "sequences": sequences, "accuracy": accuracy}

    rows = [row("101-150", 50, 0.1), row("151-200", 10, 0.8), row("over 400", 30, 0.4)]
    assert LONG_REVIEWS.of(having(by_length=rows)) == pytest.approx(0.5)
    assert LONG_REVIEWS.of(having(by_length=rows[:1])) is None
    assert LONG_REVIEWS.of(EMPTY) is None


@pytest.mark.parametrize(
    ("rare", "state"), [((0.90, 0.88, 0.89), HOLDS), ((0.97, 0.98, 0.99), FAILS)]
)
def test_most_is_a_larger_factor_than_elsewhere(tmp_path, rare, state):
    """The perplexity of the common words falls to 95, 94 and 96%."""
    store, bins = Store(tmp_path), experiments("frequency-bins")[0]
    one, other = bins.metrics[3], bins.metrics[0]
    rule = Ahead("frequency-bins", "multi-timescale", "baseline", log_ratio(one, other), less=True)
    for seed, factors in enumerate(zip(rare, (0.95, 0.94, 0.96), strict=True), 1):
        for name, (r, c) in (("baseline", (1, 1)), ("multi-timescale", factors)):
            metrics = {one.key: 2000 * r, other.key: (6 + seed) * c}
            made = dataclasses.replace(EMPTY, home="ptb-word", variant=name, seed=seed)
            store.write(bins.variant(name), dataclasses.replace(made, metrics=metrics))
    assert rule(store).state == state
    assert log_ratio(one, other).of(EMPTY) is None


def test_ahead_compares_quantities_seed_by_seed(tmp_path):
    store, home = Store(tmp_path), experiments("copy")[0]
    rule = Ahead("copy", "plstm-200", "lstm-200", SHARE_LEFT)
    for name, level in (("plstm-200", 0.7), ("lstm-200", 0.5)):
        for seed in (1, 2, 3):
            numbers = {"silenced": [0, 5], "random": [1.0, level + seed / 100]}
            details = {"unit-ablation": {"text": "", "numbers": numbers}}
            made = dataclasses.replace(EMPTY, variant=name, seed=seed, details=details)
            store.write(home.variant(name), made)
        assert rule(store).state == (OPEN if name == "plstm-200" else HOLDS)
    assert rule(store).phrase == "plstm-200 - lstm-200: +20.0 ± 0.0"
    assert rule(store).remarks.startswith("accuracy without")


def test_between_judges_every_seed(tmp_path):
    store, variant = Store(tmp_path), experiments("copy")[0].variant("plstm-200")
    rule = Between("copy", "plstm-200", WAITING, 0.1, 0.3)

    def put(*shares: float, complete: bool = True) -> Judged:
        for seed, share in enumerate(shares, 1):
            numbers = {"later": [True] * round(100 * share) + [False] * round(100 * (1 - share))}
            details = {"reference-times": {"text": "", "numbers": numbers}}
            changes = {"seed": seed, "details": details, "complete": complete}
            store.write(variant, dataclasses.replace(EMPTY, **changes))
        return rule(store)

    assert rule(store) == Judged(OPEN, "plstm-200", "not analysed")
    store.write(variant, dataclasses.replace(EMPTY, seed=3))
    few = "plstm-200: 20, 25, too few seeds"
    assert put(0.2, 0.25) == Judged(OPEN, few, "units that reset late, %, 2 seeds")
    assert put(0.2, 0.25, 0.1).state == HOLDS
    assert put(0.2, 0.25, 0.31).state == FAILS
    assert put(0.05, 0.25, 0.2).state == FAILS
    assert "shortened" in put(0.2, 0.25, 0.3, complete=False).remarks
