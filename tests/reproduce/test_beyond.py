"""Experiments beyond the papers: models with about the same number of parameters, and waves sampled at other
rates."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.archs import build_model
from tsm.plugin.reproduce.plan import plan_of
from tsm.plugin.reproduce.rates import WithoutClock
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.tasks import TASKS
from tsm.plugin.tasks.frequency import FrequencyConfig, FrequencyTask

BEYOND = [e for e in experiments() if e.page == "beyond"]


def parameters(variant) -> int:
    plan = plan_of(variant, 1, "folder", "", cpu=True, bf16=False)
    given = TASKS.get(variant.task)(plan.task_config).model_arguments()
    model = build_model(variant.arch, **{**plan.model, **given})
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("experiment", BEYOND, ids=[e.name for e in BEYOND])
def test_models_are_equal_in_size_and_seeds_are_enough(experiment):
    counts = [parameters(variant) for variant in experiment.variants]
    assert max(counts) <= 1.001 * min(counts)
    assert experiment.seeds >= 3


def test_waves_without_their_clock():
    config = FrequencyConfig(frequency_sampling="sync", frequency_step=0.5, frequency_valid=8)
    told, untold = (
        next(kind(config).eval_batches("test")) for kind in (FrequencyTask, WithoutClock)
    )
    assert torch.equal(told.x, untold.x) and torch.equal(told.target, untold.target)
    assert (told.dt[:, 1:] == 0.5).all() and (untold.dt == 1).all()
