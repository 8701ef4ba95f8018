"""tsm-preprocess on sequences of numbers, and the tasks that train on them."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from own_series import CSV, LABELLED
from tsm.plugin import Trainer
from tsm.plugin.cli.train import main as train
from tsm.plugin.data import DataDir
from tsm.plugin.data.series import Shape
from tsm.plugin.tasks import TASKS


def made(run, tmp_path, text: str = CSV, *flags, name: str = "d") -> DataDir:
    (tmp_path / f"{name}.csv").write_text(text)
    path = tmp_path / f"{name}.csv"
    code, _, err = run(
        "--trainpref", path, "--validpref", path, *flags, "--destdir", tmp_path / name
    )
    assert code == 0, err
    return DataDir(tmp_path / name)


def task_on(folder, name: str, **more):
    cls = TASKS.get(name)
    return cls(cls.Config(data=str(folder), **more))


def test_a_class_per_sequence(run, tmp_path):
    data = made(run, tmp_path, CSV, *LABELLED)
    assert (data.meta.task, data.meta.labels) == ("series", ["x", "y"])
    found = data.series("train").gather(np.array([1, 0]))
    assert found.x.tolist() == [[[1.5, 3], [2.5, 4], [3.5, 5]], [[0.5, 1], [-0.5, 2], [0, 0]]]
    assert found.lengths.tolist() == [3, 2]
    assert found.dt.tolist() == [[2, 1, 0.5], [1, 0.25, 1]]
    assert found.target.tolist() == [1, 0]
    task = task_on(tmp_path / "d", "series", batch_size=2)
    assert task.model_arguments() == {"input_size": 2, "num_classes": 2}
    assert task.takes_dt() and task.criterion == "cross_entropy"
    (batch,) = task.eval_batches("valid")
    assert batch.dt.shape == (2, 3) and batch.weight is None
    names = {"labels.txt": b"x\ny\n", "columns.txt": b"a\nb\n"}
    names["roles.txt"] = b"sequence id\ndt gap\n"
    assert task.assets() == {**names, "ranges.txt": b"-0.5 3.5\n1.0 5.0\n"}
    old = dict(data.meta.series)  # a folder of an earlier version
    del old["ranges"], old["roles"]
    assert Shape.parse(old, "meta.json").ranges == [] and not Shape.parse(old, "meta.json").roles
    with pytest.raises(ValueError, match=r"ranges is .*accepted: 2 pairs"):
        Shape.parse({**old, "ranges": [[0.0, 1.0]]}, "meta.json")
    with pytest.raises(ValueError, match=r"meta.json: roles is .*accepted: a column for"):
        Shape.parse({**old, "roles": {"label": "kind"}}, "meta.json")


def test_columns_are_told_by_name_in_every_row_and_file(run, tmp_path):
    """JSON objects have no order, and the order of columns may differ between CSV files."""
    (tmp_path / "a.jsonl").write_text(
        '{"id": 1, "a": 1, "b": 2, "k": "x"}\n{"b": 4, "id": 2, "a": 3, "k": "y"}\n'
    )
    (tmp_path / "b.jsonl").write_text('{"b": 6, "a": 5, "id": 3, "k": "x"}\n')
    files = ("--trainpref", tmp_path / "a.jsonl", "--validpref", tmp_path / "b.jsonl")
    flags = ("--sequence-column", "id", "--label-column", "k", "--destdir", tmp_path / "d")
    assert run(*files, *flags)[0] == 0
    data = DataDir(tmp_path / "d")
    assert data.series("train").gather(np.array([0, 1])).x.tolist() == [[[1, 2]], [[3, 4]]]
    assert data.series("valid").gather(np.array([0])).x.tolist() == [[[5, 6]]]
    assert data.meta.series["columns"] == ["a", "b"]


def test_the_times_of_rows_become_dt(run, tmp_path):
    text = "id,t,a,kind\nu,10,1,x\nu,12.5,1,x\nv,3,2,y\n"
    flags = ("--sequence-column", "id", "--time-column", "t", "--label-column", "kind")
    data = made(run, tmp_path, text, *flags)
    assert data.series("train").gather(np.array([0, 1])).dt.tolist() == [[1, 2.5], [1, 1]]


def test_numbers_per_step(run, tmp_path):
    flags = (
        "--sequence-column",
        "id",
        "--value-columns",
        "a",
        "--target-columns",
        "b, gap",
        "--per-step",
    )
    data = made(run, tmp_path, CSV, *flags)
    assert data.meta.task == "series_steps" and data.meta.labels is None
    task = task_on(tmp_path / "d", "series_steps", batch_size=2)
    assert task.model_arguments() == {"input_size": 1, "num_classes": 2}
    assert task.criterion == "mse" and not task.takes_dt()
    (batch,) = task.eval_batches("valid")
    assert batch.target.tolist() == [
        [[1, 1], [2, 0.25], [0, 0]], [[3, 2], [4, 1], [5, 0.5]],
    ]  # fmt: skip
    assert batch.weight.tolist() == [[1, 1, 0], [1, 1, 1]]
    names = {"targets.txt": b"b\ngap\n", "columns.txt": b"a\n", "roles.txt": b"sequence id\n"}
    assert task.assets() == {**names, "ranges.txt": b"-0.5 3.5\n"}


def test_classes_per_step(run, tmp_path):
    text = "id,a,kind\nu,1,x\nu,1,y\nv,2,y\n"
    flags = ("--sequence-column", "id", "--label-column", "kind", "--per-step")
    data = made(run, tmp_path, text, *flags)
    assert data.series("train").gather(np.array([0, 1])).target.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("kind", ["labels", "names", "numbers"])
def test_npz(run, tmp_path, kind, per_step):
    x, lengths = np.arange(12.0).reshape(2, 3, 2), np.array([3, 2])
    shape = (2, 3) if per_step else (2,)
    y = np.arange(np.prod(shape)).reshape(shape)
    y = {"labels": y, "names": y.astype(str), "numbers": y.astype(float)}[kind]
    np.savez(tmp_path / "n.npz", x=x, lengths=lengths, dt=np.full((2, 3), 0.5), y=y)
    flags = ["--per-step"] if per_step else []
    path = tmp_path / "n.npz"
    assert run("--trainpref", path, *flags, "--destdir", tmp_path / "d")[0] == 0
    data = DataDir(tmp_path / "d")
    found = data.series("train").gather(np.arange(2))
    assert found.x[1].tolist() == [[6, 7], [8, 9], [0, 0]]
    assert found.dt[1].tolist() == [0.5, 0.5, 1]
    wanted = y.astype(float).copy()
    if per_step:
        wanted[1, 2] = 0  # past the end
    assert found.target.reshape(shape).tolist() == wanted.tolist()
    assert data.meta.labels == (None if kind == "numbers" else data.meta.labels)


def test_sequences_are_dealt_by_label_and_seed(run, tmp_path):
    rows = "".join(f"s{i},{i},{'ab'[i % 4 == 0]}\n" for i in range(40))
    (tmp_path / "s.csv").write_text("id,v,kind\n" + rows)
    seen = []
    for seed in (0, 0, 1):
        out = tmp_path / f"d{len(seen)}"
        flags = ("--sequence-column", "id", "--label-column", "kind", "--split", "0.5,0.5")
        assert (
            run("--trainpref", tmp_path / "s.csv", *flags, "--seed", seed, "--destdir", out)[0] == 0
        )
        parts = [DataDir(out).series(s).gather(np.arange(20)) for s in ("train", "valid")]
        assert [int(p.target.sum()) for p in parts] == [5, 5]
        values = [p.x[:, 0, 0].tolist() for p in parts]
        assert sorted(values[0] + values[1]) == list(range(40))
        seen.append(values[0])
    assert seen[0] == seen[1] != seen[2]


def test_times_too_far_apart(run, fails, tmp_path):
    """Each time fits in float32, but their difference does not."""
    (tmp_path / "d.csv").write_text("id,v,t,kind\ns,1,-3e38,x\ns,2,3e38,x\n")
    columns = ("--sequence-column", "id", "--time-column", "t", "--label-column", "kind")
    flags = (*columns, "--destdir", tmp_path / "d")
    said = "d.csv:3: the time since the previous row is inf; accepted: above 0"
    fails(run("--trainpref", tmp_path / "d.csv", *flags), said)


def test_a_damaged_folder_is_refused(run, tmp_path):
    made(run, tmp_path, CSV, *LABELLED)
    path = tmp_path / "d" / "train.values"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match=r"train.values: damaged"):
        DataDir(tmp_path / "d")
    (tmp_path / "d" / "checksums.txt").unlink()
    with pytest.raises(FileNotFoundError, match="checksums"):
        DataDir(tmp_path / "d")


def test_large_targets_are_told(run, tmp_path):
    rows = "".join(f"s{i},1,{-1000 - i},{i / 9}\n" for i in range(8))
    (tmp_path / "d.csv").write_text("id,v,big,small\n" + rows)
    flags = (
        "--sequence-column",
        "id",
        "--target-columns",
        "big,small",
        "--destdir",
        tmp_path / "d",
    )
    _, out, err = run("--trainpref", tmp_path / "d.csv", *flags)
    assert "large targets are learned slowly; scale them first: big (up to 1.01e+03)\n" in out + err


@pytest.mark.parametrize("values", ["v,late", "v"])
def test_targets_that_are_inputs_are_told(run, tmp_path, values):
    rows = "".join(f"s{i},1,{i},{i / 9}\n" for i in range(8))
    (tmp_path / "d.csv").write_text("id,v,late,y\n" + rows)
    flags = ["--sequence-column", "id", "--value-columns", values, "--target-columns", "late,y"]
    code, out, _ = run("--trainpref", tmp_path / "d.csv", *flags, "--destdir", tmp_path / "d")
    told = "a model can copy what it should predict, since it is also an input: late\n"
    assert code == 0 and (told in out) == ("late" in values)


def test_a_label_that_is_an_input_is_told(run, tmp_path):
    rows = "".join(f"s{i},1,{i % 2}\n" for i in range(8))
    (tmp_path / "d.csv").write_text("id,v,kind\n" + rows)
    flags = ["--sequence-column", "id", "--value-columns", "v,kind", "--label-column", "kind"]
    code, out, _ = run("--trainpref", tmp_path / "d.csv", *flags, "--destdir", tmp_path / "d")
    assert code == 0 and "since it is also an input: kind\n" in out


@pytest.mark.parametrize("per_step", [False, True])
def test_the_report_says_what_is_read_and_what_comes_next(run, tmp_path, per_step):
    """Columns that were not given another role become inputs, and the report names them."""
    rows = "".join(f"s{i},1,{i},{i},2\n" for i in range(8))
    (tmp_path / "d.csv").write_text("id,gap,v,leak,y\n" + rows)
    flags = ["--sequence-column", "id", "--dt-column", "gap", "--target-columns", "y"]
    flags += ["--split", "0.5,0.5", "--destdir", tmp_path / "d", *["--per-step"] * per_step]
    code, out, _ = run("--trainpref", tmp_path / "d.csv", *flags)
    lines = out.splitlines()
    assert code == 0 and lines[0].split() == ["split", "sequences", "steps", "size"]
    assert "inputs: 2 (v, leak), with dt" in lines and "targets: 1 (y)" in lines
    argv = shlex.split(lines[-1].removeprefix("next: tsm-train "))
    assert not any("--task" in word for word in argv)  # the folder says it
    argv += ["--decoder-hidden-size", "4", "--max-update", "1", "--no-save", "--cpu"]
    assert train(argv) == 0
    trainer = Trainer(argv[argv.index("--arch") + 1], tmp_path / "d", save=False)
    assert trainer.plan.task == ("series_steps" if per_step else "series")
    with pytest.raises(ValueError, match="preprocessed for series"):
        Trainer("plstm_lm", tmp_path / "d", save=False).fit()


def test_large_inputs_and_an_unused_dt_are_told(run, tmp_path, capsys):
    rows = "".join(f"s{i},1,{i - 5},{-1e6 * i},2\n" for i in range(8))
    (tmp_path / "d.csv").write_text("id,gap,v,wide,y\n" + rows)
    flags = ["--sequence-column", "id", "--dt-column", "gap", "--target-columns", "y"]
    flags += ["--split", "0.5,0.5", "--destdir", tmp_path / "d"]
    code, out, _ = run("--trainpref", tmp_path / "d.csv", *flags)
    assert code == 0 and "scale them first: wide (up to 7e+06)\n" in out
    for arch, used in (("lstm_classifier", False), ("plstm_classifier", True)):
        argv = [str(tmp_path / "d"), "--arch", arch, "--decoder-hidden-size", "4"]
        assert train([*argv, "--max-update", "1", "--no-save", "--cpu"]) == 0
        said = "".join(capsys.readouterr())
        assert ("dt is not used: cell lstm does not take it (accepted: " in said) is not used


def test_the_wrong_task_is_told_the_right_one(run, tmp_path):
    made(run, tmp_path, CSV, *LABELLED)
    with pytest.raises(ValueError, match="preprocessed for series; accepted: --task series"):
        task_on(tmp_path / "d", "series_steps")
    with pytest.raises(ValueError, match=r"needs classification \(give --task series\)"):
        task_on(tmp_path / "d", "classification")


def test_a_short_dt_becomes_the_cells_eps(run, tmp_path):
    from tsm.plugin.cells import get_cell

    made(run, tmp_path, CSV.replace("0.25", "1e-5"), *LABELLED)
    task = task_on(tmp_path / "d", "series")
    assert task.model_wishes(get_cell("plstm")) == {"eps": pytest.approx(1e-5)}
    assert task.model_wishes(get_cell("lstm")) == {}


def test_a_key_that_the_first_line_lacks_is_named_once(run, tmp_path):
    rows = ['{"id": 1, "a": 1, "k": "x"}', '{"id": 2, "a": 2, "k": "y", "b": 3}'] * 2
    rows = [row.replace('"id": ', f'"id": {i + 1}') for i, row in enumerate(rows)]
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    flags = ("--trainpref", tmp_path / "a.jsonl", "--sequence-column", "id", "--label-column", "k")
    code, _, err = run(*flags, "--destdir", tmp_path / "d")
    assert code == 0
    assert err.count("'b' is not read") == 1 and "a.jsonl:2: 'b'" in err
    assert DataDir(tmp_path / "d").meta.series["columns"] == ["a"]
    code, _, err = run(*flags, "--value-columns", "a", "--destdir", tmp_path / "chosen")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("most", [5, 12, 40])
def test_batches_by_steps(run, tmp_path, most):
    lengths = [1, 5, 2, 4, 3, 5, 1, 2]
    rows = [f"s{i},{i},{'xy'[i % 2]}" for i, n in enumerate(lengths) for _ in range(n)]
    flags = ("--sequence-column", "id", "--label-column", "k")
    made(run, tmp_path, "id,v,k\n" + "\n".join(rows) + "\n", *flags)
    task = task_on(tmp_path / "d", "series", max_tokens=most)
    epochs = []
    for epoch in (1, 2, 3):
        found = list(task.train_batches(epoch))
        assert len(found) == task.batches_per_epoch(epoch)
        assert all(batch.x.shape[0] * batch.x.shape[1] <= most for batch in found)
        epochs.append([batch.x[:, 0, 0].tolist() for batch in found])
        assert sorted(i for part in epochs[-1] for i in part) == list(range(8))
        rest = list(task.train_batches(epoch, start=1))
        assert [batch.x[:, 0, 0].tolist() for batch in rest] == epochs[-1][1:]
    if most < 40:
        assert epochs[0] != epochs[1]
    assert sum(len(batch.x) for batch in task.eval_batches("valid")) == 8
    with pytest.raises(
        ValueError, match="max_tokens is 4; accepted: 5 or more, so that a whole sequence fits"
    ):
        task_on(tmp_path / "d", "series", max_tokens=4).batches_per_epoch(1)


@pytest.mark.parametrize("kind", ["series", "classification"])
def test_batches_by_steps_are_those_of_train(run, tmp_path, kind):
    """The other splits, longer or shorter, may hold more steps than --max-tokens."""
    lengths = {"train": [2, 3, 2, 3], "valid": [1], "test": [9] * 6}
    flags = ["--destdir", tmp_path / "d"]
    for split, many in lengths.items():
        names = [f"{split}{i}" for i in range(len(many))]
        if kind == "series":
            head, flags[2:] = "id,v,k", ["--sequence-column", "id", "--label-column", "k"]
            rows = [f"{name},0,{i % 2}" for i, name in enumerate(names) for _ in range(many[i])]
        else:
            head = "text,label"
            rows = [f"{'a ' * length},{i % 2}" for i, length in enumerate(many)]
        (tmp_path / f"{split}.csv").write_text("\n".join([head, *rows]) + "\n")
    files = [word for split in lengths for word in (f"--{split}pref", tmp_path / f"{split}.csv")]
    assert run(*files, *flags)[0] == 0
    assert [*DataDir(tmp_path / "d").meta.splits] == ["train", "valid", "test"]
    task = task_on(tmp_path / "d", kind, max_tokens=6)
    task.check_trainable()
    sizes = [tuple(batch.x.shape[:2]) for batch in task.train_batches(1)]
    assert sorted(sizes) == [(2, 2), (2, 3)] and task.batches_per_epoch(1) == 2
    assert sum(len(batch.x) for batch in task.eval_batches("test")) == 6
    too_few = task_on(tmp_path / "d", kind, max_tokens=2)
    assert sum(len(batch.x) for batch in too_few.eval_batches("test")) == 6
    with pytest.raises(ValueError, match="max_tokens is 2; accepted: 3 or more"):
        too_few.batches_per_epoch(1)
