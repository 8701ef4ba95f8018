"""The points of the figures that show analyses, from summaries with known numbers."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from tsm.plugin.reproduce.drawings import DRAWINGS
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store

ROOT = Path(__file__).parents[2]
ABLATION = {"silenced": [0, 5], "first_name": "slowest first"}


def collected(kind, name, variant, *numbers):
    """The points of a drawing of an experiment, one of whose variants has runs with these numbers."""
    (experiment,) = experiments(name)
    analysis = {"ablation": "unit-ablation", "exponents": "learned-p"}.get(
        kind, kind.replace("_", "-")
    )
    some = next(s for v in experiment.variants for s in Store(ROOT / "results").all_of(v))
    runs = [dataclasses.replace(some, details={analysis: {"numbers": n}}) for n in numbers]
    found = experiment.variant(variant)
    return DRAWINGS.get(kind).collect(experiment, [(found, runs)])


def test_accuracy_without_units_is_a_mean_over_orders_and_seeds():
    one = {**ABLATION, "random": [[1.0, 0.5], [1.0, 0.3]], "first": [1.0, 0.1]}
    two = {**ABLATION, "random": [[0.8, 0.2]], "first": None}
    assert collected("ablation", "copy", "plstm-200", one, two) == {
        "plstm, T = 200": [(0.0, pytest.approx(90)), (5.0, pytest.approx(30))],
        "plstm: slowest first, T = 200": [(0.0, 100), (5.0, 10)],
        "chance, T = 200": [(0.0, 12.5), (5.0, 12.5)],  # one of 8 symbols
    }


def test_shares_of_exponents_are_over_the_units_of_all_seeds():
    one = {"p": [[0.2, 0.9, 0.4]], "later_layer": 1, "later": [True, False, False]}
    two = {"p": [[0.5, 0.1, 0.6]], "later_layer": 1, "later": [False, True, False]}
    without = {"p": [[0.3]], "later_layer": None, "later": None}
    assert collected("exponents", "copy", "plstm-500", one, two, without) == {
        "plstm: later-reset, T = 500": [(0.1, 50), (0.2, 100)],
        "plstm: others, T = 500": [(0.4, 25), (0.5, 50), (0.6, 75), (0.9, 100)],
    }


def test_distances_to_distributions_are_means_over_seeds():
    one = {"alphas": [0.5, 1.0], "alpha_statistics": [0.2, 0.4]}
    two = {"alphas": [0.5, 1.0], "alpha_statistics": [0.4, 0.2]}
    found = collected("timescale_fit", "ptb-word", "baseline", one, two)
    assert found == {"baseline": [(0.5, pytest.approx(0.3)), (1.0, pytest.approx(0.3))]}


def test_groups_of_units_are_sorted_by_timescale_within_bins_of_words():
    numbers = {
        "timescales": [9.0, 2.0],
        "bins": ["<100", "all"],
        "ratios": [[1.5, 1.1], [1.2, 1.0]],
    }
    assert collected("routing", "ptb-word", "multi-timescale", numbers) == {
        "multi-timescale, words <100": [(2.0, 1.2), (9.0, 1.5)],
        "multi-timescale, all words": [(2.0, 1.0), (9.0, 1.1)],
    }


# Bins show the difference from the mean of the first model, in percent.
@pytest.mark.parametrize(
    ("kind", "name", "near", "far"),
    [("bins", "frequency-bins", 0, (-20, 20)), ("windows", "text-windows", 2.01, (2, 3))],
)
def test_seeds_that_are_far_apart_have_a_line_each(kind, name, near, far):
    (experiment,) = experiments(name)
    variant = experiment.variants[0]
    some = Store(ROOT / "results").all_of(variant)[0]
    keys = [m.key for m in experiment.metrics if kind == "bins" or m.key.startswith("bits_at_")]

    def drawn(*values):
        runs = [dataclasses.replace(some, metrics=dict.fromkeys(keys, v)) for v in values]
        (line,) = DRAWINGS.get(kind).collect(experiment, [(variant, runs)]).values()
        return [y for _, y in line]

    assert drawn(2.0, 2.02) == pytest.approx([near] * len(keys))
    one, two = ([value] * len(keys) for value in far)
    assert drawn(2.0, 3.0) == pytest.approx([*one, math.nan, *two], nan_ok=True)


def test_only_the_compared_models_are_drawn():
    """Nine lines in a panel could not be told apart."""
    numbers = {"timescales": [9.0], "bins": ["all"], "ratios": [[1.1]]}
    assert collected("routing", "ptb-word", "fast", numbers) == {}
    fit = {"alphas": [0.5], "alpha_statistics": [0.2]}
    assert collected("timescale_fit", "markov-text", "markov", fit)  # none are compared: all


def test_timescales_are_sorted_within_layers():
    """Of a large layer there are percentiles; older runs have kept none."""
    layers = [
        {"gates": [3.0, 1.0, 2.0]},
        {"gates": {"count": 1150, "percentiles": [1.0, 5.0, 9.0]}},
        {"gates": "400 numbers, not kept"},
    ]
    assert collected("timescales", "ptb-word", "baseline", {"layers": layers}) == {
        "baseline, layer 1": [(0, 1), (50, 2), (100, 3)],
        "baseline, layer 2": [(0, 1), (50, 5), (100, 9)],
    }


def test_only_bits_are_drawn_over_windows():
    """Not the shares of windows, whose names also end with a length."""
    (experiment,) = experiments("text-windows")
    variant = experiment.variants[0]
    (some, *_) = Store(ROOT / "results").all_of(variant)
    metrics = {**some.metrics, "bits_at_1000": 2.5, "lost_at_1000": 0.25}
    runs = [(variant, [dataclasses.replace(some, metrics=metrics)])]
    (points,) = DRAWINGS.get("windows").collect(experiment, runs).values()
    assert [x for x, _ in points] == [100, 1000, 10_000, 100_000, 1_000_000]
    assert points[1] == (1000, 2.5)
