"""The benchmark's own arithmetic: cases, comparisons and goals. No timings."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from tsm.benchmarks import pool, pool_feed
from tsm.benchmarks import rivals as rivals_module
from tsm.benchmarks.case import Case
from tsm.benchmarks.cli import build_parser, main
from tsm.benchmarks.goals import Goal, footprint_goals, goal_cases, goal_table, stream_goals
from tsm.benchmarks.graphs import forms, source, write
from tsm.benchmarks.nn_lstm_cuda import CHUNK
from tsm.benchmarks.results import Result, Results, aligned, table
from tsm.benchmarks.rivals import (
    CPP,
    FLOOR,
    LSTM_OP,
    ORT,
    SCAN,
    TSM,
    UNROLLED,
    Wrong,
    checked,
    rivals,
)
from tsm.benchmarks.saturation import GRAPH, saturates
from tsm.benchmarks.stream import model_file, wanted_cases
from tsm.benchmarks.stream_cuda import Row, cuda_goals, few_table, flop_floor, many_table
from tsm.benchmarks.train import train_goals
from tsm.benchmarks.turns import loop_of, take_turns


def result(case, rival, dtype, us):
    return Result(case, rival, dtype, us, us, 5, None)


def flags(*argv):
    return build_parser("stream").parse_args(argv)


STEP = Case("plstm", 1, 1, 256)
TIMES = [
    result(STEP, TSM, "float32", 10.0),
    result(STEP, FLOOR, "float32", 8.0),
    result(STEP, SCAN, "float32", 30.0),
    result(STEP, UNROLLED, "float32", 20.0),
    result(STEP, TSM, "bfloat16", 5.0),
    result(STEP, TSM, "int8", 4.0),
    result(STEP, SCAN, "int8", 10.0),
    result(STEP, UNROLLED, "int8", 14.0),
]


def test_best_form():
    found = Results(TIMES)
    assert found.best_ort(STEP, "float32") == found.best_ort(STEP, "bfloat16") == 20.0
    assert found.best_ort(STEP, "int8") == 10.0
    assert found.best_ort(Case("plstm", 1, 1, 512), "int8") is None
    assert found.dtypes(STEP) == ["float32", "bfloat16", "int8"]


def test_table():
    lines = table(Results(TIMES)).splitlines()
    heads = lines[0].split()
    assert heads[:5] == ["cell", "B", "T", "H", "dtype"]
    row = lines[2].split()
    assert row[:5] == ["plstm", "1", "1", "256", "float32"]
    assert row[-2:] == ["1.25", "2.00"]  # time / floor; speedup over ONNX Runtime's best form
    assert lines[4].split()[-1] == "2.50"
    assert len(lines) == 5


def test_goals():
    goals = {goal.text: goal for goal in stream_goals(Results(TIMES))}
    assert len(goals) == 17
    measured = {text: goal for text, goal in goals.items() if goal.measured is not None}
    f32 = measured["plstm B=1 T=1 H=256 float32: faster than ORT, best form"]
    int8 = measured["plstm B=1 T=1 H=256 int8: faster than ORT, best form"]
    assert (f32.measured, f32.limit, f32.met) == (2.0, 1.7, True)
    assert (int8.measured, int8.limit, int8.met) == (2.5, 3.0, False)
    assert len(measured) == 2
    text = goal_table(list(goals.values()))
    assert text.count("not measured") == 15 and "NOT met" in text


def test_goals_against_one_form():
    """A chunk of `lstm` is compared with ONNX's LSTM operator, not with the best form."""
    case = Case("lstm", 1, 64, 256)
    found = Results([
        result(case, TSM, "float32", 10.0),
        result(case, SCAN, "float32", 11.0),
        result(case, LSTM_OP, "float32", 15.0),
    ])  # fmt: skip
    (goal,) = [goal for goal in stream_goals(found) if goal.measured is not None]
    assert (goal.measured, goal.met) == (1.5, True)


def test_goal_at_most():
    assert Goal("", 1.1, False, 1.1).met and not Goal("", 1.1, False, 1.11).met
    assert [goal.met for goal in footprint_goals(59, 300, None)] == [True, False, None]


def test_quick_measures_every_goal():
    """With all cases of --quick, every goal is measured."""
    found = []
    for case, dtypes in goal_cases():
        kinds = {"int8" if d == "int8" else "float32" for d in dtypes}
        names = [SCAN, UNROLLED, *([LSTM_OP] if case.cell == "lstm" else [])]
        found += [result(case, n, d, 1.0) for d in dtypes for n in (TSM, FLOOR, CPP)]
        found += [result(case, n, k, 1.0) for k in kinds for n in names]
    assert all(goal.measured == 1.0 for goal in stream_goals(Results(found)))


def test_wanted_cases():
    everything = wanted_cases(flags())
    assert len(everything) == 2 * 3 * 2 * 4
    assert all(dtypes == ["float32", "bfloat16", "int8"] for _, dtypes in everything)
    some = wanted_cases(flags("--cells", "lstm", "--shapes", "1,1,8", "2,3,8", "--dtypes", "int8"))
    assert some == [(Case("lstm", 1, 1, 8), ["int8"]), (Case("lstm", 2, 3, 8), ["int8"])]
    assert wanted_cases(flags("--quick")) == goal_cases()
    quick = wanted_cases(flags("--quick", "--dtypes", "int8"))
    assert [case.H for case, _ in quick] == [256, 512, 1024]
    with pytest.raises(ValueError, match="no case"):
        wanted_cases(flags("--quick", "--cells", "lstm", "--dtypes", "int8"))


def test_rivals_agree_with_the_reference(tmp_path):
    """All rivals of a small case are checked against the reference, and none is missing."""
    for case in (Case("plstm", 1, 1, 32), Case("lstm", 3, 4, 32)):
        path = model_file(case, tmp_path)
        found = list(rivals(case, ["float32", "bfloat16", "int8"], path, None))
        names = {(r.name, r.dtype) for r in found}
        assert len(names) == len(found) == (15 if case.cell == "plstm" else 17)
        for rival in found:
            if rival.loop is None:
                assert saturates() and rival.name in ORT and rival.dtype == "int8"
            else:
                rival.loop(2)


def test_a_wrong_rival_is_not_timed():
    case = Case("lstm", 1, 1, 8)
    h = case.expected.copy()
    assert checked(case, "right", "float32", lambda: None, lambda: h).difference == 0
    h[0, 3] += 0.01 * np.abs(h).max()
    with pytest.raises(Wrong, match="h of wrong in float32 differs"):
        checked(case, "wrong", "float32", lambda: None, lambda: h)
    h[0, 3] = np.nan
    with pytest.raises(Wrong):
        checked(case, "wrong", "int8", lambda: None, lambda: h)


@pytest.fixture
def wrong_int8(monkeypatch):
    """ONNX Runtime's int8 gives wrong numbers, as on x86 without VNNI."""
    ort = rivals_module.ort

    def off(case, form, graphs):
        call, h = ort(case, form, graphs)
        return call, (lambda: h() + 1) if form.dtype == "int8" else h

    monkeypatch.setattr(rivals_module, "ort", off)


def test_what_the_processor_makes_wrong(wrong_int8, monkeypatch, tmp_path, capsys):
    """The table says "wrong" for a rival whose results are wrong on this processor; all others are timed."""
    monkeypatch.setattr(rivals_module, "saturates", lambda: True)
    argv = ["stream", "--cells", "lstm", "--shapes", "1,1,16", "--dtypes", "float32", "int8"]
    path = tmp_path / "t.json"
    assert main([*argv, "--seconds", "0", "--json", str(path)]) == 0
    out = capsys.readouterr().out
    for name in ORT:
        assert f"{name} in int8: wrong on this processor" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("lstm"))
    assert "wrong" not in row and row[4] == "float32"
    row = next(line.split() for line in out.splitlines() if " int8 " in line and "lstm " in line)
    assert row.count("wrong") == 3
    assert "wrong: wrong on this processor, so not timed" in out
    rows = json.loads(path.read_text())["rows"]
    untimed = {(r["rival"], r["dtype"]) for r in rows if r["median_us"] is None}
    assert untimed == {(name, "int8") for name in ORT}


def test_wrong_numbers_of_another_cause_stop_the_benchmark(wrong_int8, monkeypatch, capsys):
    monkeypatch.setattr(rivals_module, "saturates", lambda: False)
    argv = ["stream", "--cells", "lstm", "--shapes", "1,1,16", "--dtypes", "int8", "--seconds", "0"]
    assert main(argv) != 0
    assert "differs from the reference" in capsys.readouterr().err


def test_the_probe_is_a_product_of_uint8_and_int8():
    model = onnx.load_from_string(GRAPH)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == ["MatMulInteger"]
    kinds = [v.type.tensor_type.elem_type for v in model.graph.input]
    assert kinds == [onnx.TensorProto.UINT8, onnx.TensorProto.INT8]


def test_weights_do_not_depend_on_the_shape():
    """Graphs made on another machine fit, because the layer depends only on the cell and its width."""
    one, other = Case("plstm", 1, 1, 16), Case("plstm", 16, 64, 16)
    for a, b in zip(one.layer.parameters(), other.layer.parameters(), strict=True):
        assert (a == b).all()
    assert one.weight_bytes("float32") == (3 * 16 * 16 * 4,) * 2
    assert one.weight_bytes("int8") == (3 * 16 * 16 + 4 * 3 * 16,) * 2


def test_graphs_from_a_folder(tmp_path):
    """Graphs made earlier, with shared weight files, give the same numbers as new ones."""
    case = Case("lstm", 1, 2, 64)
    written = write([case], tmp_path)
    assert len(written) == 6 == len(list(forms(case)))
    floats = [p for p in tmp_path.glob("*.bin") if p.stat().st_size == 4 * 64 * 64 * 4]
    assert len(floats) == 4  # W and U, for scan and unrolled, and again for the operator
    for form in forms(case):
        call, h = rivals_module.ort(case, form, tmp_path)
        call()
        now_call, now_h = rivals_module.ort(case, form, None)
        now_call()
        assert np.array_equal(h(), now_h())
    with pytest.raises(FileNotFoundError, match="--make-graphs"):
        source(Case("lstm", 1, 3, 32), next(forms(case)), tmp_path)


def test_turns():
    """All rivals get the same number of alternating turns."""
    order = []
    loops = {name: loop_of(lambda name=name: order.append(name)) for name in "ab"}
    timed = take_turns(loops, seconds=0)
    turns = timed["a"].turns
    assert 2 <= turns == timed["b"].turns
    assert 0 < timed["a"].best <= timed["a"].median
    runs = [name for name, _ in itertools.groupby(order)]
    assert runs == ["a", "b"] * (turns + 1)  # an extra turn finds out how many calls fill a turn


def test_train_goals():
    def row(layer, backend, us, shape=(1, 2, 3, 4)):
        return SimpleNamespace(shape=shape, layer=layer, backend=backend, median_us=us)

    rows = {
        "float32": [row("torch.nn.LSTM", "torch", 10.0), row("plstm", "fused", 7.0)],
        "bfloat16": [
            row("torch.nn.LSTM", "torch", 99.0),
            row("plstm", "fused", 6.0),
            row("torch.nn.LSTM", "torch, float32", 8.0),
        ],
    }
    assert (
        len(train_goals(rows, amx=False)) == 1
    )  # the goal for bfloat16 only applies to hosts with AMX
    goals = train_goals(rows, amx=True)
    assert [(goal.measured, goal.limit, goal.met) for goal in goals] == [
        (0.7, 0.75, True),
        (0.75, 0.5, False),  # compared with nn.LSTM in float32, in the same turns
    ]
    wide = (32, 64, 256, 256)
    rows = {
        "float32": [row("torch.nn.LSTM", "torch", 10.0, wide), row("plstm", "fused", 7.0, wide)]
    }
    assert [(goal.limit, goal.met) for goal in train_goals(rows, amx=False)] == [(0.65, False)]


def test_cpu_time_is_of_one_thread(capsys):
    assert main(["train", "--clock", "cpu", "--threads", "2"]) == 2
    assert "accepted: --threads 1" in capsys.readouterr().out


def test_aligned():
    assert aligned([["a", "b"], ["long", "1"]]) == "a     b\n-------\nlong  1"


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["stream", "--shapes", "1,1"], "B,T,H"),
        (["stream", "--cells", "nru"], "element-wise"),
        (["stream", "--cells", "lstn"], "lstm"),
        (["stream", "--dtypes", "int4"], "int8"),
        (["stream", "--quik"], "--quick"),
        (["train", "--shapes", "1,1,1"], "B,T,I,H"),
        (["fly"], "stream"),
    ],
)
def test_bad_flags(argv, part, capsys):
    assert main(argv) == 2
    assert part in capsys.readouterr().err


def test_whole_command(tmp_path, capsys):
    """A tiny run, from the flags to the table, the JSON and the figure."""
    files = [tmp_path / "t.json", tmp_path / "t.png"]
    argv = ["stream", "--cells", "lstm", "--shapes", "1,1,16", "--dtypes", "float32", "--seconds"]
    assert main([*argv, "0", "--json", str(files[0]), "--plot", str(files[1])]) == 0
    out = capsys.readouterr().out
    assert "microseconds per step" in out and "h within" in out
    found = json.loads(files[0].read_text())
    assert {row["rival"] for row in found["rows"]} >= {TSM, CPP, FLOOR, SCAN, UNROLLED, LSTM_OP}
    assert all(row["H"] == 16 and row["median_us"] > 0 for row in found["rows"])
    assert files[1].read_bytes().startswith(b"\x89PNG")


def test_goals_on_a_gpu():
    """tsm is compared with the better of the rival's dtypes; a goal that was not measured is neither met nor
    missed."""
    rows = [
        Row("tsm", "plstm", "bfloat16", 1, CHUNK, 512, 2.0),
        Row("tsm", "plstm", "float32", 1, CHUNK, 512, 1.0),
        Row("nn.LSTM, chunks", "lstm", "bfloat16", 1, CHUNK, 512, 10.0),
        Row("nn.LSTM, chunks", "lstm", "float32", 1, CHUNK, 512, 5.0),
        Row("tsm", "plstm", "bfloat16", 1024, 32, 1024, 20.0),
        Row("nn.LSTM, graph", "lstm", "bfloat16", 1024, 8, 1024, 30.0),
    ]
    goals = cuda_goals(rows)
    assert [goal.measured for goal in goals] == [0.4, None, None, 1.5]
    assert [goal.met for goal in goals] == [True, None, None, False]
    assert "0.40" in few_table(rows) and "1.50" in many_table(rows)
    # 2 B (I + H) G H operations: 12.9e9 at 989e12 a second
    assert flop_floor("plstm", 1024, 1024) == pytest.approx(13.03, abs=0.01)


def test_pool_feed(tmp_path):
    sizes = {**pool.SMALL, "decoder_layers": 1}
    model, path = pool.load(tmp_path, sizes, "float32"), pool.path_of(tmp_path, sizes)
    assert main(["pool", "--feed", "2", "--clock", "cpu"]) == 2
    row = pool_feed.measure_feed(model, path, "float32", streams=3, steps=2, turns=1)
    assert row.keys() == set(pool_feed.WAYS) and all(rate > 0 for rate in row.values())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_feed, "pooled", lambda model, chunks: [np.zeros(200, np.float32)] * 3)
        with pytest.raises(RuntimeError, match="the pool's logits differ"):
            pool_feed.measure_feed(model, path, "float32", streams=3, steps=2, turns=1)


def test_pool(tmp_path):
    """All rivals must generate the same tokens; one that differs is refused."""
    model = pool.load(tmp_path, {**pool.SMALL, "decoder_layers": 1}, "float32")
    args = build_parser("pool").parse_args(["--streams", "3", "--turns", "1"])
    assert pool.measure(model, 4, args).keys() == pool.WAYS.keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(pool.WAYS, "pool", lambda model, streams, tokens: [[0] * tokens] * streams)
        with pytest.raises(RuntimeError, match="differ from those of single streams"):
            pool.measure(model, 4, args)
    assert main(["pool", "--turns", "0"]) == 2
