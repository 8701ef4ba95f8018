"""The trainer accepts every recipe, and recipes match the papers' tables."""

from __future__ import annotations

import dataclasses

import pytest

from tsm.plugin.archs import list_architectures
from tsm.plugin.data.build.sources import DATASETS
from tsm.plugin.reproduce.drawings import DRAWINGS
from tsm.plugin.reproduce.measures.catalogue import MEASURES
from tsm.plugin.reproduce.recipe import EXPERIMENTS, Experiment, Metric, Variant, register
from tsm.plugin.reproduce.recipes.catalogue import ORDER, experiments
from tsm.plugin.reproduce.runs.plan import plan_of, settings_of

ALL = experiments()
by_name = pytest.mark.parametrize("experiment", ALL, ids=[e.name for e in ALL])


def test_all_experiments_are_in_order():
    assert set(ORDER) == set(EXPERIMENTS) and len(set(ORDER)) == len(ORDER)
    assert [e.name for e in ALL] == list(ORDER)


@by_name
def test_the_trainer_takes_it(experiment):
    for variant in experiment.variants:
        if variant.program != "train":
            continue
        assert variant.arch in list_architectures()
        assert variant.data == "" or variant.data in DATASETS
        plan = plan_of(variant, 3, "folder", "data", cpu=True, bf16=False)
        assert plan.loop.seed == plan.task_config.seed == 3
        assert plan.loop.max_epoch == variant.epochs and plan.loop.max_update == variant.updates
        for name, value in variant.settings.items():
            parts = (plan.loop, plan.task_config, plan.optimizer_config, plan.schedule_config)
            found = [getattr(part, name) for part in parts if hasattr(part, name)]
            assert value in (*found, plan.model.get(name)), f"{variant.name}: {name}"


@by_name
def test_names_are_known(experiment):
    assert all(kind in DRAWINGS for kind in experiment.figures)
    keys = {metric.key for metric in experiment.metrics}
    for variant in experiment.variants:
        assert all(name in MEASURES for name in variant.measures)
        owner = EXPERIMENTS.get(variant.home)
        assert variant in owner.variants, "a run belongs to the experiment that is its home"
        if owner is experiment:
            assert set(variant.published) <= keys | {f"splits_bin_{i}" for i in range(4)}
        if variant.twice:
            assert not owner.variant(variant.twice).twice
        if (start := variant.continues) is not None:
            same = {"home": start.home, "name": start.name, "label": start.label}
            assert dataclasses.replace(variant, **same, continues=None) == start
    if experiment.variants[0].program == "train":
        trained = [v for v in experiment.variants if v.program == "train"]
        known = set().union(*map(settings_of, trained))
        assert set(experiment.smoke) <= known


def test_a_setting_that_nobody_knows_is_an_error():
    variant = dataclasses.replace(ALL[0].variants[0], settings={"batch_sise": 3})
    with pytest.raises(ValueError, match=r"batch_sise.*batch_size"):
        plan_of(variant, 1, "folder", "data", cpu=True, bf16=False)


def test_names_are_file_names():
    with pytest.raises(ValueError, match="accepted"):
        Variant("home", "../up", "label")


def test_twins_and_unknown_pairs_are_refused():
    one = Variant("x", "a", "a")
    columns = (Metric("m", "m"),)
    with pytest.raises(ValueError, match="two variants"):
        Experiment("x", "x", "x", "x", (one, one), columns)
    with pytest.raises(ValueError, match="no variant 'b'"):
        Experiment("x", "x", "x", "x", (one,), columns, pairs=(("a", "b"),))
    with pytest.raises(ValueError, match="already registered"):
        register(ALL[0])


def test_published_numbers_of_the_tables():
    """Spot checks against the papers' tables."""
    table = {(e.name, v.name): dict(v.published) for e in ALL for v in e.variants}
    assert table["imdb", "plstm-fixed-clip"] == {"test_accuracy": pytest.approx(0.881)}
    assert table["psmnist-pl", "plstm-256"] == {"test_accuracy": pytest.approx(0.944)}
    assert table["psmnist-fg", "fast_lstm"] == {"test_accuracy": pytest.approx(0.9618)}
    assert table["ptb-char", "lstm-500-reset"] == {"test_bpc": 1.403}
    assert table["ptb-char-settings", "lstm-500-reset-dropout"] == {}  # tuned: not the paper's
    assert table["ptb-word", "multi-timescale"]["splits_bin_3"] == 1902.37
    found = table["frequency-discrimination", "plstm-async"]
    assert found == {"test_accuracy": pytest.approx(0.9257)}
