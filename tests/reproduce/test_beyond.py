"""Experiments beyond the papers: models with about the same number of parameters, waves sampled at other rates,
and texts read in windows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tsm.plugin.archs import build_model
from tsm.plugin.reproduce.history import History
from tsm.plugin.reproduce.measures.base import Subject
from tsm.plugin.reproduce.measures.texts import windows
from tsm.plugin.reproduce.measures.waves import WithoutClock
from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.runs.plan import plan_of
from tsm.plugin.tasks import TASKS
from tsm.plugin.tasks.frequency import FrequencyConfig, FrequencyTask
from tsm.plugin.tasks.language_modeling import LanguageModelingConfig

BEYOND = [e for e in experiments() if e.page == "beyond"]
SYMBOLS = {"ptb": 10_000, "wikitext-2": 33_278, "text8": 27}


def parameters(variant) -> int:
    plan = plan_of(variant, 1, "folder", "", cpu=True, bf16=False)
    known = SYMBOLS.get(variant.data)
    given = (
        {"vocab_size": known}
        if known
        else TASKS.get(variant.task)(plan.task_config).model_arguments()
    )
    model = build_model(variant.arch, **{**plan.model, **given})
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("experiment", BEYOND, ids=[e.name for e in BEYOND])
def test_models_are_equal_in_size_and_seeds_are_enough(experiment):
    counts = {variant.name: parameters(variant) for variant in experiment.variants}
    compared = experiment.pairs or [tuple(counts)]
    for names in compared:
        sizes = [counts[name] for name in names]
        assert max(sizes) <= 1.001 * min(sizes), names
    assert experiment.seeds >= 3


def test_waves_without_their_clock():
    config = FrequencyConfig(frequency_sampling="sync", frequency_step=0.5, frequency_valid=8)
    told, untold = (
        next(kind(config).eval_batches("test")) for kind in (FrequencyTask, WithoutClock)
    )
    assert torch.equal(told.x, untold.x) and torch.equal(told.target, untold.target)
    assert (told.dt[:, 1:] == 0.5).all() and (untold.dt == 1).all()


def test_windows_of_a_text(tmp_path):
    """Each window is read alone, from zero to its end."""
    torch.manual_seed(0)
    task = TASKS.get("language_modeling")(LanguageModelingConfig(generated_tokens=2000))
    model = build_model("plstm_lm", decoder_hidden_size=8, **task.model_arguments())
    world, config = SimpleNamespace(device=torch.device("cpu")), SimpleNamespace(bf16=False)
    trainer = SimpleNamespace(task=task, model=model, world=world, config=config)
    found, _ = windows(Subject(trainer, Path(), History(tmp_path / "history.jsonl"), smoke=True))
    text = torch.from_numpy(task.splits["test"].read(0, 100))

    def expected(length):
        bits = []
        for window in text.split(length):
            logits, _ = model(window[None, :-1])
            bits.append(torch.nn.functional.cross_entropy(logits[0], window[1:]).item() / np.log(2))
        return np.array(bits)

    guessing = np.log2(len(task.vocab))
    for window, length in ((100, 2), (100_000, 10), (1_000_000, 100)):
        bits = expected(length)
        assert found[f"bits_at_{window}"] == pytest.approx(bits.mean(), abs=1e-6)
        assert found[f"lost_at_{window}"] == (bits > guessing).mean()
    assert 0 < found["lost_at_100"] < 1
    assert found["bits_at_100"] != found["bits_at_1000000"]
    assert found["window_gain"] == found["bits_at_1000"] - found["bits_at_1000000"]
