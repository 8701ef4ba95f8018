"""A summary records the commit, the command and the data that it was made from."""

from __future__ import annotations

import json

import pytest

from tsm.plugin.reproduce.measures.analyses import ANALYSES, MOST, kept
from tsm.plugin.reproduce.measures.catalogue import MEASURES
from tsm.plugin.reproduce.runs import origin
from tsm.plugin.reproduce.runs.runner import flags_of, perform
from tsm.plugin.reproduce.store import FORMAT, OLDER


@pytest.fixture(autouse=True)
def nothing_cached():
    origin.commit.cache_clear()
    origin.data_hash.cache_clear()


def test_a_run_keeps_its_origin(room, monkeypatch):
    monkeypatch.setenv(origin.VARIABLE, "0123abc")
    run = room.run(2)
    made = perform(run, room.conditions(epochs=1), say=print).summary.origin
    assert made == {
        "commit": "0123abc",
        "command": "tsm-reproduce tiny --variants plstm-5 --seeds 2-2 --epochs 1",
    }
    assert room.store.read(run.variant, 2).origin == made


def test_flags_that_change_nothing_are_not_named(room):
    assert flags_of(room.run(), room.conditions()) == ()
    assert flags_of(room.run(), room.conditions(bf16=False, smoke=True)) == ("--no-bf16", "--smoke")


def test_no_git_and_no_history_are_no_error(monkeypatch):
    monkeypatch.delenv(origin.VARIABLE, raising=False)
    monkeypatch.setattr(origin.shutil, "which", lambda name: None)
    assert origin.commit() == ""


def test_the_data_hash_is_of_names_and_bytes(tmp_path):
    def value():
        origin.data_hash.cache_clear()
        return origin.data_hash(str(tmp_path))

    (tmp_path / "a.bin").write_bytes(b"one")
    first = value()
    (tmp_path / "meta.json").write_text("a version")
    assert value() == first and len(first) == origin.DIGITS
    (tmp_path / "a.bin").write_bytes(b"onf")
    assert value() != first
    (tmp_path / "a.bin").write_bytes(b"one")
    (tmp_path / "a.bin").rename(tmp_path / "b.bin")
    assert value() != first


def test_older_summaries_are_read_as_without_origin(room):
    run = room.run()
    perform(run, room.conditions(epochs=1), say=print)
    path = room.store.path(run.variant, 1)
    values = json.loads(path.read_text())
    assert values["format"] == FORMAT and values.pop("origin")
    path.write_text(json.dumps(values | {"format": OLDER}))
    assert room.store.read(run.variant, 1).origin == {}
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="origin"):
        room.store.read(run.variant, 1)


@pytest.mark.parametrize("name", ANALYSES)
def test_analyses_are_measures(room, name):
    """For a power-law model on the copy task, analyses that apply are kept as text and numbers, and the others
    are left out."""
    run = room.run(measures=(name,))
    found = perform(run, room.conditions(epochs=1, smoke=True), say=print).summary.details
    assert name in MEASURES
    assert not found or (found[name]["text"] and found[name]["numbers"])
    if name in ("learned-p", "reference-times", "unit-ablation"):
        assert name in found


def test_large_arrays_are_kept_as_percentiles():
    small, large = [1.0] * MOST, [[1.0] * MOST, [2.0]]
    gone = {"count": MOST + 1, "percentiles": [1.0] * 100 + [2.0]}
    found = kept({"a": small, "b": {"c": large}, "layers": [{"d": large, "e": 1.0}]})
    assert found == {"a": small, "b": {"c": gone}, "layers": [{"d": gone, "e": 1.0}]}
