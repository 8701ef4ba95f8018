"""Label names are passed on from the data through training and export to tsm-stream; tsm-predict on texts and
numbers."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tsm
from tsm.plugin.cli.predict import main as predict
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.stream import main as stream
from tsm.plugin.cli.train import main as train
from tsm.plugin.data.roles import ROLES
from tsm.plugin.trained import open_trained

package = pytest.importorskip("tsm.export.tsm.package").package
SMALL = ["--decoder-hidden-size", "8", "--max-update", "6", "--lr", "0.05", "--cpu"]
SMALL += ["--log-format", "none", "--no-epoch-checkpoints"]
NAMES = ["a\ttab x", "neg", "pos"]
TEXTS = ["good film", "a bad, bad film", "so so and so on"]


def learn(folder: Path, data: list[str], *flags: str) -> SimpleNamespace:
    """Preprocess, train, package."""
    assert preprocess([*data, "--destdir", str(folder / "data")]) == 0
    assert train([str(folder / "data"), *flags, *SMALL, "--save-dir", str(folder / "run")]) == 0
    path = folder / "run" / "checkpoint_best.pt"
    package(open_trained(path), folder / "m.tsm")
    return SimpleNamespace(path=str(path), file=str(folder / "m.tsm"), folder=folder)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("texts")
    rows = [{"text": t, "label": NAMES[(i + 2) % 3]} for i, t in enumerate(TEXTS * 4)]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--trainpref", str(folder / "t.jsonl"), "--split", "0.5,0.5"]
    return learn(folder, data, "--arch", "plstm_classifier", "--decoder-embed-dim", "4")


WAVES = "id,dt,v,y,kind\n" + "".join(
    f"s{s},{0.5 + t % 2},{np.sin(s * t):.3f},{s + t},{'ab'[s % 2]}\n"
    for s in range(6)
    for t in range(2 + s)
)


def waves(folder: Path, *flags: str, arch: str, task: str) -> SimpleNamespace:
    (folder / "w.csv").write_text(WAVES)
    path = str(folder / "w.csv")
    data = ["--trainpref", path, "--validpref", path, "--sequence-column", "id", *flags]
    data += ["--dt-column", "dt", "--value-columns", "v"]
    return learn(folder, data, "--task", task, "--arch", arch)


def headed(folder: Path, header: str) -> str:
    """The table with other names for its columns."""
    (folder / "w.csv").write_text(f"{header}\n{WAVES.partition(chr(10))[2]}")
    return str(folder / "w.csv")


@pytest.fixture(scope="module")
def classes(tmp_path_factory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("classes")
    return waves(folder, "--label-column", "kind", arch="plstm_classifier", task="series")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("numbers")
    flags = ("--target-columns", "y", "--per-step")
    return waves(folder, *flags, arch="lstm_tagger", task="series_steps")


@pytest.fixture
def ask(capsys, monkeypatch):
    """Run tsm-predict; returns its rows."""

    def call(*args: str, text: str = "") -> list[dict]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        capsys.readouterr()  # of the training
        assert predict([*args, "--format", "json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return call


def fails(capsys, args: list[str], said: str) -> None:
    assert predict(args) == 2
    assert said in capsys.readouterr().err


def test_a_checkpoint_says_what_its_model_says(labelled, ask):
    trained = open_trained(labelled.path)
    assert trained.labels == NAMES
    rows = ask(labelled.path, "--cpu", text="\n".join(TEXTS) + "\n")
    for number, (text, row) in enumerate(zip(TEXTS, rows, strict=True), 1):
        ids = torch.tensor([trained.tokenizer.encode_line(text, trained.vocab)])
        shares = torch.softmax(trained.model(ids)[0][0].double(), 0).tolist()
        assert row["line"] == number
        assert row["label"] == NAMES[int(np.argmax(shares))]
        assert row["probability"] == pytest.approx(max(shares), abs=1e-6)
        assert list(row["probabilities"].values()) == pytest.approx(shares, abs=1e-6)
        assert list(row["probabilities"]) == NAMES


def same(one: list[dict], two: list[dict]) -> None:
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for key, value in a.items():
            if isinstance(value, dict):
                assert list(value) == list(b[key])
                assert list(value.values()) == pytest.approx(list(b[key].values()), abs=1e-5)
            elif isinstance(value, float):
                assert value == pytest.approx(b[key], abs=1e-5)
            else:
                assert value == b[key]


def test_a_file_says_the_same_whatever_the_batch(labelled, ask):
    lines = "\n".join([*TEXTS, "", "never seen words"]) + "\n"
    one = ask(labelled.path, "--cpu", text=lines)
    same(one, ask(labelled.file, text=lines))
    same(one, ask(labelled.path, "--cpu", "--batch-size", "1", text=lines))
    assert one[3] == {
        "line": 4, "label": None, "probability": None, "probabilities": dict.fromkeys(NAMES),
    }  # fmt: skip


def test_numbers_are_no_classes(tmp_path, capsys, ask):
    """tsm-predict writes numeric outputs; predict() of tsm.load gives classes and refuses such a model."""
    flags = ("--target-columns", "t", "--value-columns", "v")
    (tmp_path / "r.csv").write_text("id,v,t\na,1,0.5\na,2,0.5\nb,3,-0.5\n")
    data = ["--trainpref", str(tmp_path / "r.csv"), "--validpref", str(tmp_path / "r.csv")]
    data += ["--sequence-column", "id", *flags]
    made = learn(tmp_path, data, "--task", "series", "--arch", "lstm_classifier")
    capsys.readouterr()
    x = np.array([[1.0], [2.0]], np.float32)
    rows = ask(made.file, data[1], "--sequence-column", "id", "--value-columns", "v")
    for path in (made.path, made.file):
        model = tsm.load(path)
        assert model.logits([x])[0] == pytest.approx(rows[0]["values"]["t"], abs=1e-5)
        with pytest.raises(ValueError, match=r"predict\(\) gives classes; .* gives numbers \(t\)"):
            model.predict([x])


def test_a_column_of_a_table(labelled, ask, capsys, tmp_path):
    (tmp_path / "new.csv").write_text('id,review\n1,"a bad,\nbad film"\n2,good film\n')
    rows = ask(labelled.file, str(tmp_path / "new.csv"), "--text-column", "review")
    assert [row["line"] for row in rows] == [2, 4]
    lines = ask(labelled.file, text="a bad, bad film\ngood film\n")
    assert [r["probabilities"] for r in rows] == [r["probabilities"] for r in lines]
    text = (tmp_path / "new.csv").read_text()
    flags = ("--input-format", "csv", "--text-column", "review")
    assert ask(labelled.file, *flags, text=text) == rows
    for flag, value in {"--delimiter": "ab", "--encoding": "base64"}.items():
        args = [labelled.file, str(tmp_path / "new.csv"), "--text-column", "review", flag, value]
        fails(capsys, args, f"{flag} is {value!r}")


def test_what_is_not_finite_has_no_class(classes):
    for path in (classes.path, classes.file):
        for bad in (np.nan, 1e300):
            with pytest.raises(ValueError, match=r"inputs\[0\] has a number that is not finite"):
                tsm.load(path).predict([np.full((2, 1), bad)])


def test_sequences_of_numbers_with_their_dt(classes, ask, tmp_path):
    columns = ("--sequence-column", "id", "--value-columns", "v")
    table = str(classes.folder / "w.csv")
    rows = ask(classes.path, table, *columns, "--dt-column", "dt", "--cpu")
    same(rows, ask(classes.file, table, *columns, "--dt-column", "dt"))
    assert [row["sequence"] for row in rows] == [f"s{i}" for i in range(6)]
    assert {row["label"] for row in rows} <= {"a", "b"}
    without = ask(classes.file, headed(tmp_path, "id,gap,v,y,kind"), *columns)
    assert without[0]["probabilities"] != rows[0]["probabilities"]


def test_columns_are_those_of_training(classes, ask, capsys, monkeypatch, tmp_path):
    """In tables that have them. A flag wins; a file of an earlier version does not know them."""
    table, flags = str(classes.folder / "w.csv"), ("--sequence-column", "id", "--dt-column", "dt")
    rows = ask(classes.file, table, *flags)
    for model in (classes.path, classes.file):
        same(rows, ask(model, table))
    assert rows == ask(classes.file, "--input-format", "csv", text=WAVES)
    assert predict([classes.file, table]) == 0
    told = "w.csv is read as in training: --sequence-column 'id' --dt-column 'dt'"
    assert capsys.readouterr().err == f"tsm-predict: {told}\n"
    for given, told in (
        (flags, ""),
        (flags[2:], "--sequence-column 'id'"),
        (["--time-column", "y", *flags[:2]], ""),
        (["--sequence-column", "kind", "--time-column", "dt"], ""),
        (["--value-columns", "dt"], "--sequence-column 'id'"),
        (["--time-column", "id"], ""),
        (["--sequence-column", "dt"], ""),
        (["--sequence-column", ""], "--dt-column 'dt'"),
        (["--time-column", ""], "--sequence-column 'id'"),
    ):
        predict([classes.file, table, *given])
        assert capsys.readouterr().err.partition("in training: ")[2].partition("\n")[0] == told
    trained = open_trained(classes.path)
    assert trained.roles == {"sequence": "id", "dt": "dt"}
    assets = {name: data for name, data in trained.assets.items() if name != ROLES}
    package(trained.model, tmp_path / "old.tsm", assets=assets)
    assert tsm.load(tmp_path / "old.tsm").roles == {}
    assert len(ask(str(tmp_path / "old.tsm"), table)) == 1
    same(rows, ask(str(tmp_path / "old.tsm"), table, *flags))
    with pytest.raises(ValueError, match=r"roles.txt is .*; accepted: a column for sequence"):
        package(trained.model, tmp_path / "bad.tsm", assets={**trained.assets, ROLES: b"dt"})


def test_a_flag_that_repeats_the_training_changes_nothing(ask, tmp_path):
    """dt is a value as well."""
    (tmp_path / "w.csv").write_text(WAVES)
    table = str(tmp_path / "w.csv")
    values = ["--value-columns", "v,dt"]
    data = ["--trainpref", table, "--validpref", table, "--sequence-column", "id"]
    data += ["--dt-column", "dt", "--label-column", "kind", *values]
    made = learn(tmp_path, data, "--arch", "plstm_classifier")
    assert ask(made.file, table, *values) == ask(made.file, table)


def test_columns_that_the_table_lacks_are_told(classes, capsys, tmp_path):
    lacks = "lacks what the training data had: --sequence-column 'id' --dt-column 'dt'"
    assert predict([classes.file, headed(tmp_path, "ID,Dt,v,y,kind")]) == 0
    assert f"tsm-predict: w.csv {lacks}\n" in capsys.readouterr().err
    flags = ["--sequence-column", "ID", "--dt-column", "Dt"]
    assert predict([classes.file, str(tmp_path / "w.csv"), *flags]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "w.csv").write_text("ID,Dt,v\n")
    assert predict([classes.file, str(tmp_path / "w.csv")]) == 0
    assert capsys.readouterr().err == ""


def test_no_column_on_request(classes, ask):
    table = str(classes.folder / "w.csv")
    (row,) = ask(classes.file, table, "--sequence-column", "", "--dt-column", "")
    (one,) = ask(classes.file, table, "--sequence-column", "")
    assert row["sequence"] == "1"
    assert row["probabilities"] != one["probabilities"]


def test_a_cell_without_time_steps_reads_none(numbers, capsys):
    assert open_trained(numbers.path).roles == {"sequence": "id", "dt": "dt"}
    assert predict([numbers.file, str(numbers.folder / "w.csv")]) == 0
    assert capsys.readouterr().err.endswith("as in training: --sequence-column 'id'\n")


def test_time_steps_that_are_not_given_are_told(classes, capsys, monkeypatch, tmp_path):
    """The warning is printed once, and only if the cell uses time steps."""
    columns = ["--sequence-column", "id", "--value-columns", "v"]
    table = headed(tmp_path, "id,gap,v,y,kind")
    for flags, times in (([], 1), (["--dt-column", "gap"], 0)):
        assert predict([classes.file, table, *columns, *flags]) == 0
        assert capsys.readouterr().err.count("has no time steps") == times
    for flags, typed, times in (([], b"0.5\n0.25\n", 1), (["--dt", "last"], b"0.5 2\n", 0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        assert stream([classes.file, *flags]) == 0
        assert capsys.readouterr().err.count("uses time steps") == times


def test_time_steps_that_predict_is_not_given_are_told(classes, numbers):
    """A cell that takes no dt loses nothing."""
    x = [np.zeros((2, 1))]
    for path in (classes.path, classes.file):
        with pytest.warns(
            UserWarning, match=r"dt is not given, so every step lasts 1; .* with times in 'dt'"
        ):
            without = tsm.load(path).predict(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            given = tsm.load(path).predict(x, dt=1)
        assert without.probabilities.tolist() == given.probabilities.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tsm.load(numbers.path).logits(x)  # its cell takes no dt


def test_values_far_outside_those_of_training_are_told(classes, tmp_path, capsys, monkeypatch):
    """Once, whether the model is a checkpoint or a file, and in a stream."""
    (tmp_path / "n.csv").write_text("id,v,dt\n" + "s,0.5,1\nt,99,1\nt,0,1\nu,99,1\n")
    columns = ["--sequence-column", "id", "--dt-column", "dt"]
    for model in (classes.path, classes.file):
        assert predict([model, str(tmp_path / "n.csv"), *columns]) == 0
        answer = capsys.readouterr()
        assert len(answer.out.splitlines()) == 4
        (line,) = [line for line in answer.err.splitlines() if "far outside" in line]
        assert line.startswith("tsm-predict: n.csv:3: far outside the training data")
        assert "v (0 to 99; in training " in line
        with pytest.warns(UserWarning, match=r"inputs\[1\]: far outside the training data"):
            tsm.load(model).predict([np.zeros((2, 1)), np.full((2, 1), 99.0)], dt=1)
    typed = b"0.5 1\n" * 300 + b"99 1\n" * 300
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
    assert stream([classes.file, "--dt", "last"]) == 0
    assert capsys.readouterr().err.count("tsm-stream: step 256: far outside the training data") == 1


def test_columns_that_may_name_the_sequences_are_told(classes, capsys, tmp_path):
    """Without a sequence column all rows are one sequence, which may not be meant."""
    table = headed(tmp_path, "name,dt,v,y,kind")
    given = [classes.file, table, "--value-columns", "v", "--dt-column", "dt"]
    assert predict(given) == 0
    answer = capsys.readouterr()
    assert len(answer.out.splitlines()) == 2
    assert "w.csv: all rows are one sequence (--sequence-column names" in answer.err
    assert answer.err.rstrip().endswith("not read: 'name', 'y', 'kind'")
    assert predict([*given, "--sequence-column", "name"]) == 0
    answer = capsys.readouterr()
    assert len(answer.out.splitlines()) == 7 and "one sequence" not in answer.err


def test_npz(classes, ask, tmp_path):
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "n.npz", x=x, lengths=np.array([3, 2]))
    rows = ask(classes.file, str(tmp_path / "n.npz"))
    same(rows, ask(classes.path, str(tmp_path / "n.npz"), "--cpu"))
    assert [row["sequence"] for row in rows] == ["1", "2"]


def test_numbers_for_every_step(numbers, ask):
    table = str(numbers.folder / "w.csv")
    columns = ("--sequence-column", "id", "--value-columns", "v")
    rows = ask(numbers.path, table, *columns, "--cpu")
    same(rows, ask(numbers.file, table, *columns))
    assert [(r["sequence"], r["step"]) for r in rows[:3]] == [("s0", 1), ("s0", 2), ("s1", 1)]
    assert list(rows[0]["values"]) == ["y"]


def test_tsv_in_a_file(labelled, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("good film\n\n")
    out = tmp_path / "out.tsv"
    assert predict([labelled.file, str(tmp_path / "in.txt"), "--output", str(out)]) == 0
    assert "1 texts without a word have no label" in capsys.readouterr().err
    head, first, second = out.read_text().splitlines()
    assert head.split("\t") == ["line", "label", "probability", "p(a\\ttab x)", "p(neg)", "p(pos)"]
    assert first.split("\t")[0] == "1" and len(first.split("\t")) == 6
    assert second == "2" + "\t" * 5


def test_stream_names_the_labels(labelled, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good film")))
    assert stream([labelled.file, "--format", "json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["label"] for row in rows] == [NAMES[row["best"]] for row in rows]
    assert len(rows) == 2
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good film")))
    assert stream([labelled.file]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[0]
        .endswith("probability\tp(a\\ttab x)\tp(neg)\tp(pos)")
    )


def test_stream_of_a_model_of_numbers(numbers, ask, capsys, monkeypatch):
    """tsm-stream prints the numbers that tsm-predict writes, not probabilities."""
    table = numbers.folder / "w.csv"
    rows = ask(numbers.file, str(table), "--sequence-column", "id", "--value-columns", "v")
    with table.open() as file:
        of_first = [row["v"] for row in csv.DictReader(file) if row["id"] == "s0"]
    typed = "\n".join(of_first).encode()
    for form, first in (("json", "{"), ("tsv", "position\ty\n")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        assert stream([numbers.file, "--format", form]) == 0
        out = capsys.readouterr().out
        assert out.startswith(first)
        if form == "json":
            found = [json.loads(line)["values"] for line in out.splitlines()]
            same(found, [row["values"] for row in rows[: len(of_first)]])


def test_other_exports_know_the_labels(labelled, numbers):
    from tsm.export.common.facts import facts
    from tsm.export.common.formats import Options, Source

    for made, fact, wanted in ((labelled, "labels", NAMES), (numbers, "targets", ["y"])):
        trained = open_trained(made.path)
        found = facts(Source(trained.model, trained.config, trained.assets), Options())
        assert json.loads(found[fact]) == wanted


def test_bad_input(labelled, classes, capsys, tmp_path):
    fails(capsys, ["nowhere.tsm"], "nowhere.tsm does not exist")
    fails(capsys, [labelled.file, "nowhere.txt"], "nowhere.txt is not a file")
    (tmp_path / "new.parquet").write_bytes(b"PAR1")
    for model in (labelled.file, classes.file):
        fails(capsys, [model, str(tmp_path / "new.parquet")], "Parquet files are not read")
    fails(capsys, [labelled.file, "--dt-column", "x"], "takes texts")
    fails(capsys, [classes.file, "--text-column", "x"], "takes rows of numbers")
    fails(capsys, [classes.file], "reads rows of 1 numbers")
    table = str(classes.folder / "w.csv")
    fails(capsys, [classes.file, table, "--value-columns", "v,y"], "w.csv:2: 2 values per step")
    fails(capsys, [classes.file, table, "--dt-column", "dt", "--time-column", "y"], "both given")
    fails(capsys, [labelled.file, table, "--output", table], "would replace")
    (tmp_path / "gaps.csv").write_text("id,dt,v,y\ns,1,1,\ns,,2,3\nt,1,nan,3\n")
    told = "gaps.csv:3: missing numbers: 2 in 2 of 3 rows (dt in line 3, v in line 4); accepted: "
    fails(capsys, [classes.file, str(tmp_path / "gaps.csv")], told)


def test_a_language_model_is_refused(word, capsys):
    fails(
        capsys, [str(word.path), "--cpu"], "is a language model; accepted: a classifier or tagger"
    )


def test_a_file_needs_no_torch(labelled):
    code = "import sys; from tsm.plugin.cli.predict import main; code = main(sys.argv[1:])\n"
    code += "assert 'torch' not in sys.modules; sys.exit(code)"
    words = [sys.executable, "-c", code, labelled.file]
    done = subprocess.run(words, input="good film\n", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("line\tlabel\tprobability")


@pytest.mark.parametrize("flags", ["--max-length 2", "--max-length 5 --fixed-length"])
def test_a_file_reads_as_much_of_a_text_as_its_checkpoint(tmp_path, ask, capsys, flags):
    rows = [{"text": t, "label": NAMES[i % 2]} for i, t in enumerate(TEXTS * 4)]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = ["--trainpref", str(tmp_path / "t.jsonl"), "--split", "0.5,0.5"]
    words = ["--arch", "plstm_classifier", "--decoder-embed-dim", "4", *flags.split()]
    made = learn(tmp_path, data, *words)
    lines = "good film\na bad, bad film so so and so on\n" + "bad " * 9 + "\n"
    for more in ([], ["--max-length", "1"]):
        same(ask(made.path, "--cpu", *more, text=lines), ask(made.file, *more, text=lines))
    texts = lines.splitlines()
    checkpoint, file = tsm.load(made.path), tsm.load(made.file)
    lengths = [len(text.replace(",", " ,").split()) for text in texts]
    steps = [np.linspace(0.5, 2, length) for length in lengths]
    for dt in (None, 0.5, steps):
        one, two = (model.predict(texts, dt) for model in (checkpoint, file))
        assert np.allclose(one.probabilities, two.probabilities, atol=1e-5)
    one, two = (file.predict(texts, dt).probabilities for dt in (1, 2))
    assert not np.array_equal(one, two)
    if "--fixed-length" in flags:
        (tmp_path / "long.txt").write_text(lines)
        more = [str(tmp_path / "long.txt"), "--max-length", "7"]
        for words in ([made.path, *more, "--cpu"], [made.file, *more]):
            fails(capsys, words, "a text has 7 tokens; accepted: at most 5")


def test_columns_are_found_by_name(tmp_path, ask, capsys):
    rows = [(f"s{i}", i / 8, 1 - i / 4, "ab"[i % 2]) for i in range(8)]
    text = "id,v,w,kind\n" + "".join(f"{s},{v},{w},{k}\n" for s, v, w, k in rows)
    (tmp_path / "a.csv").write_text(text)
    swapped = "w,extra,id,v\n" + "".join(f"{w},9,{s},{v}\n" for s, v, w, _ in rows)
    (tmp_path / "b.csv").write_text(swapped)
    (tmp_path / "c.csv").write_text("id,v,other\nx,1,2\n")
    (tmp_path / "d.csv").write_text("".join(f"{s},{v},{w}\n" for s, v, w, _ in rows))
    path, of = str(tmp_path / "a.csv"), ("--sequence-column", "id")
    data = ["--trainpref", path, "--validpref", path, *of, "--label-column", "kind"]
    made = learn(tmp_path, data, "--task", "series", "--arch", "lstm_classifier")
    wanted = ask(made.path, path, *of, "--value-columns", "v,w", "--cpu")
    assert wanted != ask(made.path, path, *of, "--value-columns", "w,v", "--cpu")
    for model, flags in ((made.path, ["--cpu", *of]), (made.file, of)):
        for table in ("a.csv", "b.csv"):
            same(wanted, ask(model, str(tmp_path / table), *flags))
        headless = (str(tmp_path / "d.csv"), "--no-header", "--sequence-column", "1")
        same(wanted, ask(model, *headless, *flags[:-2]))
        fails(capsys, [model, str(tmp_path / "c.csv"), *flags], "c.csv:2: no column 'w'")


def test_a_reader_that_has_enough(labelled):
    for module in ("predict", "stream"):
        with subprocess.Popen(
            [sys.executable, "-m", f"tsm.plugin.cli.{module}", labelled.file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            process.stdout.close()
            _, said = process.communicate(b"good film\n" * 100)
        assert process.returncode == 141, said
        assert b"error" not in said
