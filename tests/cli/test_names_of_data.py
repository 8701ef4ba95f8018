"""Data whose columns, labels or targets have another order than those of a trained model: found by name."""

from __future__ import annotations

import json
from unittest.mock import ANY

import numpy as np
import pytest
import torch

from tsm.plugin.cli.eval import main as evaluate
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train
from tsm.plugin.data import DataDir

SMALL = ["--decoder-hidden-size", "6", "--lr", "0.02", "--cpu", "--log-format", "none"]
SMALL += ["--no-epoch-checkpoints", "--max-update", "20", "--batch-size", "6"]
CLASSES = ["--label-column", "kind"]
NUMBERS = ["--target-columns", "p,q"]


def table(path, columns, rename=lambda kind: kind, scale=1.0, kinds=("a", "b", "c")):
    """Sequences of the columns v and w, with a label and two numbers each."""
    rng = np.random.default_rng(3)
    lines = [",".join(["id", *columns])]
    for i in range(12):
        kind = i % 3
        for v, w in rng.normal(size=(4 + i % 2, 2)) + kind:
            row = {"id": f"s{i}", "v": v * scale, "w": -w, "kind": rename("abc"[kind]), "x": 0.1}
            row |= {"p": kind / 2, "q": 1 - kind / 2}
            if "abc"[kind] in kinds:
                lines.append(",".join(str(row[name]) for name in ("id", *columns)))
    path.write_text("\n".join(lines) + "\n")
    return path


def folder(path, *flags):
    """A data folder from the table `path`, with the splits train and valid, or only those in `flags`."""
    splits = [] if "--testpref" in flags else ["--trainpref", str(path), "--validpref", str(path)]
    out = path.with_suffix("")
    assert preprocess([*splits, "--sequence-column", "id", *flags, "--destdir", str(out)]) == 0
    return out


def run(data, save, arch, *flags):
    assert train([str(data), "--arch", arch, *SMALL, "--save-dir", str(save), *flags]) == 0
    return save / "checkpoint_best.pt"


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    root = tmp_path_factory.mktemp("classes")
    data = folder(table(root / "t.csv", ["v", "w", "kind"]), *CLASSES)
    return data, run(data, root / "run", "lstm_classifier")


def scores(data, model, tmp_path, split="valid"):
    flags = ["--path", str(model), "--gen-subset", split, "--cpu", "--json", str(tmp_path / "r")]
    assert evaluate([str(data), *flags]) == 0
    found = json.loads((tmp_path / "r").read_text())
    return {name: found[name] for name in ("loss", "accuracy", "by_label") if name in found}


def fails(capsys, command, args, *said):
    assert command([*map(str, args)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    for part in said:
        assert part in err


def test_inputs(classes, tmp_path):
    """In another order, and among others."""
    data, model = classes
    expected = scores(data, model, tmp_path)
    other = folder(table(tmp_path / "o.csv", ["kind", "w", "x", "v"]), *CLASSES)
    assert scores(other, model, tmp_path) == expected


def test_a_folder_that_is_only_evaluated(classes, tmp_path, capsys):
    data, model = classes
    path = table(tmp_path / "t.csv", ["w", "v", "kind"])
    alone = folder(path, "--testpref", str(path), *CLASSES)
    assert scores(alone, model, tmp_path, "test") == scores(data, model, tmp_path)
    flags = ["--arch", "lstm_classifier", *SMALL, "--save-dir", tmp_path / "r"]
    fails(capsys, train, [alone, *flags], "has no train split")


def test_some_of_the_labels(classes, tmp_path):
    data, model = classes
    path = table(tmp_path / "t.csv", ["v", "w", "kind"], kinds="bc")
    some = scores(folder(path, "--testpref", str(path), *CLASSES), model, tmp_path, "test")
    everything = scores(data, model, tmp_path)["by_label"]
    assert [row["count"] for row in some["by_label"]] == [0, 4, 4]
    for one, all_ in zip(some["by_label"][1:], everything[1:], strict=True):
        assert one["recall"] == all_["recall"]


def test_names_that_the_model_or_the_data_lacks(classes, tmp_path, capsys):
    _, model = classes
    renamed = folder(
        table(tmp_path / "r.csv", ["v", "w", "kind"], lambda kind: f"z{kind}"), *CLASSES
    )
    told = f"the model lacks labels of {renamed}: za, zb, zc; there are a, b, c"
    fails(capsys, evaluate, [renamed, "--path", model, "--cpu"], told)
    narrow = folder(table(tmp_path / "n.csv", ["v", "x", "kind"]), *CLASSES)
    told = f"{narrow} lacks inputs of the model: w; there are v, x"
    fails(capsys, evaluate, [narrow, "--path", model, "--cpu"], told)


def test_values_far_outside_are_told_once(classes, tmp_path, capsys):
    _, model = classes
    far = folder(table(tmp_path / "f.csv", ["w", "v", "kind"], scale=1e3), *CLASSES)
    capsys.readouterr()
    flags = ["--path", str(model), "--gen-subset", "valid", "--cpu", "--batch-size", "3"]
    assert evaluate([str(far), *flags]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "far outside" in line]
    assert line.startswith(f"tsm-eval: warning: {far}: far outside the training data")
    assert ": v (" in line and "w (" not in line


def test_targets(tmp_path):
    data = folder(table(tmp_path / "t.csv", ["v", "w", "p", "q"]), *NUMBERS)
    model = run(data, tmp_path / "run", "lstm_classifier")
    path = table(tmp_path / "o.csv", ["q", "w", "v", "p"])
    other = folder(path, "--target-columns", "q,p")
    assert scores(other, model, tmp_path)["loss"] == pytest.approx(
        scores(data, model, tmp_path)["loss"], rel=1e-6
    )


def test_targets_that_are_only_numbered(tmp_path, capsys):
    """Those of a .npz file have no names, so they are not compared with names."""
    named = folder(table(tmp_path / "t.csv", ["v", "w", "p", "q"]), *NUMBERS)
    split = DataDir(named).series("train")
    rows = split.gather(np.arange(len(split)))
    path = str(tmp_path / "n.npz")
    np.savez(path, x=rows.x, y=rows.target, lengths=rows.lengths)
    numbered = tmp_path / "n"
    given = ["--trainpref", path, "--validpref", path, "--destdir", str(numbered)]
    assert preprocess(given) == 0
    models = {data: run(data, data / "run", "lstm_classifier") for data in (named, numbered)}
    for data, model in models.items():
        losses = [scores(other, model, tmp_path)["loss"] for other in models]
        assert losses[0] == losses[1]
        other = next(one for one in models if one != data)
        flags = [*SMALL, "--arch", "lstm_classifier", "--save-dir", str(model.parent)]
        flags[flags.index("20")] = "25"
        assert train([str(other), *flags]) == 0


def test_targets_that_are_called_y0_and_y1(tmp_path, capsys):
    """They may stand for no names, but not if one of them is in both."""

    def data(name, *targets):
        text = table(tmp_path / f"{name}.csv", ["v", "w", "p", "q", "x"]).read_text()
        (tmp_path / f"{name}.csv").write_text(text.replace("p,q", "y0,y1", 1))
        flags = ["--value-columns", "v,w", "--target-columns", ",".join(targets)]
        return folder(tmp_path / f"{name}.csv", *flags)

    model = run(data("t", "y0", "y1"), tmp_path / "run", "lstm_classifier")
    expected = pytest.approx(scores(tmp_path / "t", model, tmp_path)["loss"], rel=1e-6)
    for targets in (("y1", "y0"), ("x", "y0", "y1")):
        other = data(f"o{len(targets)}", *targets)
        assert scores(other, model, tmp_path)["loss"] == expected
    told = "lacks targets of the model: y1; there are y0, x"
    fails(capsys, evaluate, [data("x", "y0", "x"), "--path", model, "--cpu"], told)
    told = "lacks targets of the model: y0, y1; there are x"
    fails(capsys, evaluate, [data("z", "x"), "--path", model, "--cpu"], told)
    turned = [tmp_path / "o2", *SMALL, "--arch", "lstm_classifier", "--save-dir", model.parent]
    fails(capsys, train, turned, "targets y0, y1 (here y1, y0)")


def test_classes_and_numbers_are_not_mixed_up(classes, tmp_path, capsys):
    data, model = classes
    numbers = folder(table(tmp_path / "t.csv", ["v", "w", "p", "q"]), *NUMBERS)
    told = f"the targets of {numbers} are numbers; the model's outputs are classes"
    fails(capsys, evaluate, [numbers, "--path", model, "--cpu"], told)
    other = run(numbers, tmp_path / "run", "lstm_classifier")
    told = f"the targets of {data} are classes; the model's outputs are numbers"
    fails(capsys, evaluate, [data, "--path", other, "--cpu"], told)


def test_a_model_without_names_of_its_labels(classes, tmp_path, capsys):
    """As older versions wrote it: it cannot tell which of its classes a folder with fewer has."""
    data, model = classes
    old = torch.load(model, weights_only=True)
    del old["assets"]["labels.txt"]
    torch.save(old, tmp_path / "old.pt")
    assert scores(data, tmp_path / "old.pt", tmp_path) == {
        **scores(data, model, tmp_path),
        "by_label": ANY,
    }
    path = table(tmp_path / "t.csv", ["v", "w", "kind"], kinds="bc")
    some = folder(path, "--testpref", str(path), *CLASSES)
    told = f"{some} has 2 labels; the model has 3, whose names it does not know"
    flags = ["--path", tmp_path / "old.pt", "--gen-subset", "test", "--cpu"]
    fails(capsys, evaluate, [some, *flags], told)


def test_labels_of_all_splits(tmp_path):
    """Without a train split the labels are those of the others together."""
    paths = [
        str(table(tmp_path / f"{kinds}.csv", ["v", "w", "kind"], kinds=kinds))
        for kinds in ("c", "ab")
    ]
    given = ["--validpref", paths[0], "--testpref", paths[1], "--sequence-column", "id", *CLASSES]
    assert preprocess([*given, "--destdir", str(tmp_path / "d")]) == 0
    assert DataDir(tmp_path / "d").meta.labels == ["a", "b", "c"]


def test_longer_sequences_than_max_tokens(tmp_path):
    """--max-tokens is for training, so a folder that is only evaluated may have longer sequences."""
    data = folder(table(tmp_path / "t.csv", ["v", "w", "kind"]), *CLASSES)
    model = run(data, tmp_path / "run", "lstm_classifier", "--max-tokens", "5")
    path = table(tmp_path / "l.csv", ["v", "w", "kind"])
    names = path.read_text().replace("\ns1,", "\ns0,").replace(",b\n", ",a\n")
    path.write_text(names)  # a sequence of 9 steps
    longer = folder(path, "--testpref", str(path), *CLASSES)
    (most,) = {int(np.diff(s.offsets).max()) for s in [DataDir(longer).series("test")]}
    assert most == 9
    assert "loss" in scores(longer, model, tmp_path, "test")


def test_a_folder_without_dt_is_told(tmp_path, capsys):
    """To a model that was trained with time steps, in a column `x` of 0.1."""
    path = table(tmp_path / "t.csv", ["v", "w", "x", "kind"])
    model = run(folder(path, "--dt-column", "x", *CLASSES), tmp_path / "run", "plstm_classifier")
    without = folder(table(tmp_path / "o.csv", ["v", "w", "kind"]), *CLASSES)
    capsys.readouterr()
    scores(without, model, tmp_path)
    told = f"{without} has no dt, so every step lasts 1; {model} was trained with times in 'x'"
    assert capsys.readouterr().err == f"tsm-eval: warning: {told}\n"


def test_arrays_without_dt_are_told(tmp_path, capsys):
    path, x = str(tmp_path / "n.npz"), np.random.default_rng(1).normal(size=(6, 4, 2))
    folders = []
    for more in ({"dt": np.full((6, 4), 0.5)}, {}):
        np.savez(path, x=x, y=np.arange(6) % 2, **more)
        folders.append(str(tmp_path / f"d{len(folders)}"))
        given = ["--trainpref", path, "--validpref", path, "--destdir", folders[-1]]
        assert preprocess(given) == 0
    model = run(folders[0], tmp_path / "run", "plstm_classifier")
    capsys.readouterr()
    scores(folders[0], model, tmp_path)
    assert not capsys.readouterr().err
    scores(folders[1], model, tmp_path)
    assert f"{folders[1]} has no dt, so every step lasts 1; " in capsys.readouterr().err


def test_texts(tmp_path):
    rows = [("good film", "pos"), ("bad film", "neg"), ("so so", "mid")] * 6
    tables = {"t": rows, "n": [row for row in rows if row[1] != "mid"]}
    for name, kept in tables.items():
        lines = [f"{text},{label}\n" for text, label in kept]
        (tmp_path / f"{name}.csv").write_text("text,label\n" + "".join(lines))
    whole, some = (str(tmp_path / f"{name}.csv") for name in tables)
    data = tmp_path / "t"
    assert preprocess(["--trainpref", whole, "--validpref", whole, "--destdir", str(data)]) == 0
    model = run(data, tmp_path / "run", "lstm_classifier", "--decoder-embed-dim", "4")
    given = ["--testpref", some, "--srcdict", str(data / "dict.txt")]
    assert preprocess([*given, "--destdir", str(tmp_path / "n")]) == 0
    everything = scores(data, model, tmp_path)["by_label"]
    found = scores(tmp_path / "n", model, tmp_path, "test")["by_label"]
    assert [row["label"] for row in found] == ["mid", "neg", "pos"]
    assert [row["count"] for row in found] == [0, 6, 6]
    assert [row["recall"] for row in found[1:]] == [row["recall"] for row in everything[1:]]


def test_training_goes_on_only_with_the_same_names(classes, tmp_path, capsys):
    _, model = classes
    other = folder(table(tmp_path / "o.csv", ["w", "v", "kind"]), *CLASSES)
    flags = [*SMALL, "--arch", "lstm_classifier"]
    again = [other, *flags, "--save-dir", model.parent, "--max-update", "30"]
    told = f"{model.with_name('checkpoint_last.pt')} was trained on data with other names or another order"
    fails(capsys, train, again, told, "inputs v, w (here w, v)")
    begun = ["--finetune-from-model", str(model), "--save-dir", str(tmp_path / "tuned")]
    flags[flags.index("none")] = "simple"
    assert train([str(other), *flags, *begun]) == 0
    assert "differ from those of" in capsys.readouterr().out
