"""Two models compared on the same seeds, also if a run did not reach a level, and on the same sequences."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tsm.plugin.reproduce.paired import Difference, bootstrap_interval, bounds, differences, shown
from tsm.plugin.reproduce.recipe import Metric
from tsm.plugin.reproduce.significance import RANKED, decided
from tsm.plugin.reproduce.store import Summary

LEVEL = Metric("updates_to_90", "updates to 90%", digits=0, level=0.9)
NEVER = math.inf


def run(name: str, reached: float, ended: int, seed: int = 1, **more) -> Summary:
    """A run of `ended` updates that reached the level after `reached`, or did not get that far."""
    there = reached <= ended
    metrics = {"valid_accuracy": 0.95 if there else 0.5}
    metrics |= {LEVEL.key: reached} if there else {}
    history = [{"update": 1}, {"update": ended}]
    stopped = more.pop("stopped", "")
    made = (name, seed, True, stopped, 1.0, 1, ended, 0, more.pop("metrics", metrics))
    return Summary("copy", *made, 1.0, "", "", {}, {}, history=history)


def difference(a: Summary, b: Summary) -> Difference:
    (found,) = differences(LEVEL, [a], [b])
    return found


@pytest.mark.parametrize(
    ("a", "b", "value", "bound"),
    [
        ((30, 50), (40, 90), -10, ""),
        ((30, 50), (95, 90), -60, "b not within 90 updates"),
        ((95, 90), (30, 50), 60, "a not within 90 updates"),
        ((30, 50), (NEVER, 30), 0, "b not within 30 updates"),
        ((30, 50), (NEVER, 20), 0, "neither within 20 updates"),  # it was stopped too early
        ((NEVER, 50), (NEVER, 90), 0, "neither within 50 updates"),
    ],
)
def test_a_run_below_the_level_counts_with_the_updates_that_both_made(a, b, value, bound):
    assert difference(run("a", *a), run("b", *b)) == Difference(1, value, bound)


def test_bounds_keep_the_sign_and_are_never_too_large():
    random = np.random.default_rng(0)
    for _ in range(300):
        times = random.integers(1, 100, 2).tolist()
        ends = random.integers(1, 100, 2).tolist()
        found = difference(run("a", times[0], ends[0]), run("b", times[1], ends[1])).value
        mirrored = difference(run("a", times[1], ends[1]), run("b", times[0], ends[0])).value
        exact = times[0] - times[1]
        assert found * exact >= 0 and abs(found) <= abs(exact) and found == -mirrored


def test_a_run_that_diverged_was_followed_until_then():
    other, early = run("a", 30, 50), run("b", NEVER, 40, stopped="diverged: the loss is nan")
    assert early.diverged and difference(other, early).value == -10
    assert difference(run("a", 45, 50), early).value == 0


@pytest.mark.parametrize("metrics", [{}, {"valid_accuracy": 0.95}])
def test_a_run_that_was_not_measured_says_nothing(metrics):
    assert not differences(LEVEL, [run("a", 30, 50)], [run("b", 0, 50, metrics=metrics)])


def test_other_metrics_have_no_bounds():
    accuracy = Metric("test_accuracy", "accuracy")
    assert not differences(accuracy, [run("a", 30, 50)], [run("b", NEVER, 50)])


@pytest.mark.parametrize(
    ("complete", "epochs", "count"),
    [(True, 50, 1), (False, 90, 1), (False, 89, 0), (False, 120, 0)],
)
def test_runs_of_other_lengths_are_not_compared(complete, epochs, count):
    """Unless both are at their end, or the value is the time until a level."""
    whole = replace(run("a", 30, 50), epochs=100.0, of_epochs=100)
    other = replace(run("b", 40, 50), complete=complete, epochs=float(epochs), of_epochs=500)
    accuracy = Metric("valid_accuracy", "accuracy")
    assert len(differences(accuracy, [whole], [other])) == count
    assert len(differences(accuracy, [other], [whole])) == count
    assert len(differences(LEVEL, [whole], [other])) == 1


def test_bounds_are_shown_seed_by_seed():
    first = [run("a", 20, 50), run("a", NEVER, 50, 2), run("a", 10, 50, 3), run("a", 9, 50, 4)]
    second = [run("b", 30, 50), run("b", 10, 50, 2), run("b", NEVER, 40, 3)]
    assert shown(differences(LEVEL, first, second[:1]), LEVEL) == "-10"
    found = differences(LEVEL, first, second)
    assert [one.seed for one in found] == [1, 2, 3]
    assert shown(found, LEVEL) == "-10, above +40, below -30"
    assert bounds(found) == "; seed 2: a not within 50 updates; seed 3: b not within 40 updates"
    assert shown([Difference(1, 0, "x")], LEVEL) == "unknown"


def test_a_bound_never_decides_against_its_direction():
    exact = [Difference(seed, -10 - seed % 2) for seed in range(9)]
    assert decided(exact) == decided([*exact, Difference(9, -1, "b")]) == -1
    assert decided([*exact, Difference(9, 1)]) == -1
    assert decided([*exact, Difference(9, 1, "a")]) == 0


@pytest.mark.parametrize("seeds", [3, 5, RANKED, 8])
@pytest.mark.parametrize("kind", ["log-normal", "exponential", "half never learn"])
def test_equal_models_are_rarely_told_apart(seeds, kind):
    """At most 5%, as for an exact interval; 1,000 samples of a rate of 5% have a deviation of 0.7%."""
    random = np.random.default_rng(1)

    def updates() -> float:
        if kind == "log-normal":
            return float(np.exp(random.standard_normal()))
        if kind == "exponential":
            return random.exponential()
        return random.normal(0.3, 0.03) if random.random() < 0.5 else NEVER

    told = 0
    for _ in range(1000):
        pairs = []
        for seed in range(seeds):
            a = run("a", 1000 * updates(), 1000, seed)
            pairs.append((a, run("b", 1000 * updates(), 2000, seed)))
        told += decided(differences(LEVEL, *zip(*pairs, strict=True))) != 0
    assert told <= 1000 * (0.05 + 3 * 0.007)


def sequences(bits: np.ndarray) -> np.ndarray:
    return np.stack([100 * bits, np.full(len(bits), 100.0)], axis=1)


def test_what_both_find_hard_cancels():
    """Sequences differ by several bits, but the models by 0.1 bits everywhere: the interval is narrow and
    excludes 0."""
    hard = np.linspace(3, 7, 200)
    low, high = bootstrap_interval(sequences(hard + 0.1), sequences(hard), samples=500)
    ratio = 2**0.1 - 1
    assert 0 < low < high and high < 2 * low
    assert low < ratio * 2 ** hard.mean() < high


def test_equal_models_differ_by_nothing():
    hard = np.linspace(3, 7, 50)
    assert bootstrap_interval(sequences(hard), sequences(hard), samples=50) == (0.0, 0.0)


def test_a_difference_of_either_sign_is_not_significant():
    hard = np.full(400, 5.0)
    noise = np.where(np.arange(400) % 2, 0.5, -0.5)
    low, high = bootstrap_interval(sequences(hard + noise), sequences(hard), samples=500)
    assert low < 0 < high


def test_other_texts_are_refused():
    with pytest.raises(ValueError, match="same text"):
        bootstrap_interval(sequences(np.ones(3)), sequences(np.ones(4)))
