"""Every experiment runs at a tiny size and gives every number that its table shows."""

from __future__ import annotations

import pytest

from tsm.plugin.reproduce.recipes.catalogue import experiments
from tsm.plugin.reproduce.store import Store
from tsm.plugin.reproduce.tables import screen

ALL = experiments()
# These numbers may be missing: nothing is learned in two updates, and a tiny text has no frequent words.
RARE = {"updates_to_50", "updates_to_90", "updates_to_99"}
EMPTY = {f"splits_bin_{i}" for i in range(4)}


@pytest.mark.parametrize("experiment", ALL, ids=[e.name for e in ALL])
def test_smoke(experiment, command, tmp_path):
    code, printed = command(experiment.name, "--smoke", "--cpu")
    assert code == 0, printed
    assert experiment.title in printed
    store = Store(tmp_path / "results")
    found: set[str] = set()
    for variant in experiment.variants:
        (summary,) = store.all_of(variant)
        assert summary.complete and summary.seed == 1, variant.name
        found |= set(summary.metrics)
    wanted = {metric.key for metric in experiment.metrics}
    assert wanted - RARE - EMPTY <= found
    if wanted & EMPTY:
        assert found & EMPTY
    assert "not been run yet" not in screen(experiment, store)
