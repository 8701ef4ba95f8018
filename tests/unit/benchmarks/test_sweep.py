"""The sweep over shapes on a GPU: everything but the timing."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tsm.benchmarks import plot, sweep_cuda
from tsm.benchmarks.cli import main
from tsm.benchmarks.sweep_cuda import (
    Kept,
    Row,
    drawn,
    exchange_floor,
    floors,
    goals,
    ratios,
    shapes,
    sweep,
    table,
)

RATE = (770e6, 4.15e6)
MACHINE = {"gpu": "NVIDIA H200", "torch": "2.11", "cudnn": 91900}


def rows_at(kind, shape, ours=1.0, lstm=1.0):
    """cuDNN takes 4 us in bfloat16 and 8 in tf32; `ours` and `lstm` are relative to the better one."""
    made = [Row(kind, shape, "cuDNN bfloat16", 4.0), Row(kind, shape, "cuDNN tf32", 8.0)]
    plans = ("grid 72 x 1, units 16, rows 80", "steps")
    made.append(Row(kind, shape, "plstm bfloat16", 4 * ours, True, 1e-3, plans, 2.0))
    made.append(Row(kind, shape, "lstm bfloat16", 4 * lstm, True, 1e-3, plans, None))
    if shape[3] == 64:
        made.append(Row(kind, shape, "plstm float32", 8 * ours, False, 1e-6, ("alone 1 x 4",) * 2))
    return made


def whole(seed=0, **change):
    return [row for shape, kind in shapes(seed).items() for row in rows_at(kind, shape, **change)]


def test_shapes():
    found = shapes(0)
    assert len(found) == 65 and [*found.values()].count("drawn") == 12
    assert {shape[0] for shape in found} >= {1, 1024} and {s[3] for s in found} >= {64, 3072}
    assert any(shape[2] == 1 for shape in found) and max(shape[1] for shape in found) == 4096
    listed = {shape for shape, kind in found.items() if kind == "B x H"}
    assert len(listed) == 40 and all(shape[1:3] == (64, shape[3]) for shape in listed)


def test_drawn_shapes_follow_from_the_seed_alone():
    known = {shape for shape, kind in shapes(0).items() if kind != "drawn"}
    assert drawn(0, known) == drawn(0, known) != drawn(1, known)
    for seed in range(20):
        found = drawn(seed, known)
        assert len({*found}) == 12 and not known.intersection(found)
        assert all(1 <= b <= 1024 and 64 <= h <= 3072 for b, _, _, h in found)
        assert all(16 <= t <= 256 and 1 <= i <= 3072 for _, t, i, _ in found)


def test_floors():
    assert exchange_floor(4, 64) == 0  # U in one multiprocessor
    assert exchange_floor(3, 512) == pytest.approx(0.86)  # in a cluster
    assert exchange_floor(3, 2048) == pytest.approx(2.8)
    row = Row("B x H", (256, 64, 1024, 1024), "plstm bfloat16", 46.0)
    product, memory, exchange = floors(row, RATE)
    assert product == pytest.approx(3 * 2 * 256 * 3 * 1024 * 2048 / 770e6)
    assert memory == pytest.approx(256 * 1024 * (18 + 3 + 8 + 3) * 2 / 4.15e6)
    assert exchange == pytest.approx(2.8)
    # cuDNN has four gates
    assert floors(replace(row, layer="cuDNN tf32"), RATE)[0] == pytest.approx(product * 4 / 3)


def test_ratios_are_to_the_better_rival_and_float32_to_tf32():
    found = ratios(rows_at("B x H", (16, 64, 64, 64), ours=0.5, lstm=0.75))
    at = (16, 64, 64, 64)
    assert found == {
        ("plstm bfloat16", at): 0.5,
        ("lstm bfloat16", at): 0.75,
        ("plstm float32", at): 0.5,
    }


def test_goals():
    good = goals(whole(ours=0.4, lstm=0.6), 0)
    assert all(goal.met for goal in good) and len(good) == 11
    slow = [*whole(ours=0.4, lstm=0.6)]
    at = next(i for i, row in enumerate(slow) if row.kind == "drawn" and row.layer[0] == "p")
    slow[at] = replace(slow[at], us=4.3)
    assert [goal.text for goal in goals(slow, 0) if not goal.met] == [
        "plstm bfloat16, 12 of 12 drawn shapes: largest time over cuDNN's best"
    ]
    part = goals(rows_at("B x H", (1024, 64, 1024, 1024), ours=0.8), 0)
    assert [(goal.text, goal.met) for goal in part if goal.met is not None] == [
        ("plstm bfloat16, 1 of 53 listed shapes: largest time over cuDNN's best", True),
        ("lstm bfloat16, 1 of 53 listed shapes: largest time over cuDNN's best", True),
        ("plstm bfloat16, 1 of 40 shapes B x H: geometric mean of the ratios", False),
        ("plstm bfloat16, 1024 x 1024", False),
    ]


def test_table():
    rows = rows_at("B x H", (16, 64, 64, 64), ours=0.5)
    rows[3] = replace(rows[3], wrong="grad x", difference=0.25)
    lines = table(rows, RATE).splitlines()
    assert lines[2].startswith("B x H  16,64,64,64  cuDNN bfloat16  4.00")
    ours = lines[4].split()
    assert ours[:4] == ["plstm", "bfloat16", "2.00", "0.50"]
    assert ours[9:] == ["2.00", "1.00", "grid", "72", "x", "1", "steps"]
    assert lines[5].endswith("WRONG: grad x differs by 0.25")
    assert lines[6].endswith("back to back")


def test_the_planner_beside_the_time(monkeypatch):
    def plan(backward, **how):
        assert how == {
            "cell": "plstm",
            "dtype": "bfloat16",
            "device": 0,
            "batch": 8,
            "hidden": 1504,
        }
        return ("grid 94 x 1, units 16", 5.0 if backward else 3.0)

    monkeypatch.setattr(sweep_cuda, "_core", SimpleNamespace(recurrence_cuda_plan=plan))
    shape = (8, 64, 1, 1500)
    plans, us = sweep_cuda.planned("plstm", torch.bfloat16, shape, RATE)
    assert plans == ("grid 94 x 1, units 16",) * 2
    assert us == pytest.approx(8 + 2 * 8 * 3 * 1500 * 1503 / 770e6)
    nothing = SimpleNamespace(recurrence_cuda_plan=lambda **_: ("", 0.0))
    monkeypatch.setattr(sweep_cuda, "_core", nothing)
    assert sweep_cuda.planned("plstm", torch.bfloat16, shape, RATE) == (("steps",) * 2, None)


def test_time_limit():
    """A shape that was begun is finished; the remaining shapes are counted."""
    now, kept = iter([0.0, 0.0, 30.0, 59.0, 61.0, 62.0]), []
    left = sweep(
        [((i, 1, 1, 1), "drawn") for i in range(5)],
        lambda kind, shape: [Row(kind, shape, "plstm bfloat16", 1.0)],
        lambda rows: kept.extend(rows),
        60.0,
        lambda: next(now),
    )
    assert (len(kept), left) == (3, 2)


def test_a_file_is_continued(tmp_path):
    path = tmp_path / "sweep.json"
    kept = Kept(path, 3)
    todo = kept.todo(["plstm", "lstm"])
    assert len(todo) == 65
    kept.begin(MACHINE, RATE)
    (shape, kind), *rest = todo
    kept.add(rows_at(kind, shape))
    again = Kept(path, 3)
    again.begin(MACHINE, (1.0, 1.0))
    assert again.rows == kept.rows and again.rate == pytest.approx(RATE)
    assert again.todo(["plstm", "lstm"]) == rest
    assert again.todo(["janet"]) == todo
    with pytest.raises(ValueError, match="seed 3; accepted: 4"):
        Kept(path, 4)
    with pytest.raises(ValueError, match="gpu NVIDIA H200; accepted: A100"):
        again.begin({**MACHINE, "gpu": "A100"}, RATE)


def test_report_without_a_gpu(tmp_path, capsys):
    path, picture = tmp_path / "sweep.json", tmp_path / "sweep.png"
    argv = ["train", "--device", "cuda", "--sweep", "--minutes", "0", "--json", str(path)]
    assert main(argv) == 2
    assert "nothing was measured" in capsys.readouterr().out
    kept = Kept(path, 0)
    kept.begin(MACHINE, RATE)
    kept.add(whole(ours=0.4, lstm=1.2))
    assert main([*argv, "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "geometric mean" in out and out.count("NOT met") == 4
    assert picture.read_bytes().startswith(b"\x89PNG")
    stored = json.loads(path.read_text())
    assert [goal["met"] for goal in stored["goals"]].count(False) == 4
    kept.add([replace(kept.rows[2], shape=(2, 2, 2, 2), wrong="y")])
    assert main(argv) == 1  # a wrong layer


def test_a_picture_needs_a_shape(tmp_path):
    with pytest.raises(ValueError, match="accepted: at least one"):
        plot.heat_maps({}, "nothing", tmp_path / "x.png")


def test_the_sweep_is_the_gpus(capsys):
    assert main(["train", "--sweep"]) == 2
    assert "accepted: --device cuda" in capsys.readouterr().out
