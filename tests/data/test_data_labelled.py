"""tsm-preprocess on labelled texts: CSV, TSV, JSON lines, Hugging Face folders; every error names its line."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tsm.plugin.data import DataDir
from tsm.plugin.data.build.shares import deal
from tsm.plugin.tasks import TASKS

ROWS = [('good, "really" good\nfilm', "pos"), ("bad film", "neg"), ("so so", "meh")] * 4


def write(folder, name: str, rows=ROWS, delimiter: str = ",", **more) -> str:
    """Writes the rows to a file, in the format that its name implies."""
    path = folder / name
    if name.endswith("jsonl"):
        path.write_text("".join(json.dumps({"text": t, "label": y}) + "\n" for t, y in rows))
    else:
        with path.open("w", newline="", **more) as f:
            csv.writer(f, delimiter=delimiter).writerows([("text", "label"), *rows])
    return str(path)


def items(data: DataDir, split: str) -> list[tuple[str, str]]:
    """(text as its tokens, name of the label) of every row."""
    corpus = data.corpus(split)
    texts = [data.tokenizer.decode(corpus.item(i), data.vocab) for i in range(corpus.items)]
    return [(t, data.meta.labels[y]) for t, y in zip(texts, corpus.labels, strict=True)]


@pytest.mark.parametrize("name, delimiter", [("a.csv", ","), ("a.tsv", "\t"), ("a.jsonl", "")])
def test_all_kinds_of_tables_give_the_same_rows(run, tmp_path, name, delimiter):
    train, valid = (
        write(tmp_path, s + name, rows, delimiter) for s, rows in (("t", ROWS), ("v", ROWS[:3]))
    )
    code, out, err = run("--trainpref", train, "--validpref", valid, "--destdir", tmp_path / "d")
    assert (code, err) == (0, "")
    assert "labels: 3 (meh, neg, pos)" in out
    data = DataDir(tmp_path / "d")
    assert data.meta.task == "classification" and data.meta.num_classes == 3
    assert items(data, "train")[:3] == [
        ('good , " really " good film', "pos"), ("bad film", "neg"), ("so so", "meh"),
    ]  # fmt: skip
    assert [y for _, y in items(data, "valid")] == ["pos", "neg", "meh"]


def test_labels_that_are_numbers_are_in_their_order_and_booleans_are_names(run, tmp_path):
    rows = [("a b", y) for y in (10, 9, -1, 10)]
    path = write(tmp_path, "n.jsonl", rows)
    assert run("--trainpref", path, "--destdir", tmp_path / "n")[0] == 0
    assert DataDir(tmp_path / "n").meta.labels == ["-1", "9", "10"]
    path = write(tmp_path, "b.jsonl", [("a b", True), ("c", False)])
    assert run("--trainpref", path, "--destdir", tmp_path / "b")[0] == 0
    assert DataDir(tmp_path / "b").meta.labels == ["false", "true"]


def test_characters_are_one_item_per_text(run, tmp_path):
    path = write(tmp_path, "c.csv", [("ab", "x"), ("b", "y")])
    assert run("--trainpref", path, "--tokenizer", "char", "--destdir", tmp_path / "c")[0] == 0
    data = DataDir(tmp_path / "c")
    assert items(data, "train") == [("ab", "x"), ("b", "y")]
    assert data.meta.splits["train"]["lines"] == 2


def test_pieces_of_words(run, tmp_path):
    path = write(tmp_path, "p.csv")
    flags = ("--bpe", "sentencepiece", "--vocab-size", 275, "--destdir", tmp_path / "p")
    assert run("--trainpref", path, *flags)[0] == 0
    assert items(DataDir(tmp_path / "p"), "train")[1] == ("bad film\n", "neg")


def test_shares_are_dealt_label_by_label_and_by_seed(run, tmp_path):
    rows = [(f"w{i}", "ab"[i % 10 == 0]) for i in range(200)]
    path = write(tmp_path, "s.csv", rows)
    seen = []
    for seed in (0, 0, 1):
        out = tmp_path / f"d{len(seen)}"
        code, said, _ = run(
            "--trainpref", path, "--split", "0.8,0.1,0.1", "--seed", seed, "--destdir", out
        )
        assert code == 0
        data = DataDir(out)
        sets = {split: items(data, split) for split in ("train", "valid", "test")}
        assert {s: len(v) for s, v in sets.items()} == {"train": 160, "valid": 20, "test": 20}
        assert all(sum(y == "b" for _, y in v) == len(v) // 10 for v in sets.values())
        seen.append(
            data.corpus("train").labels.tolist() + data.corpus("train").read(0, 160).tolist()
        )
        assert (
            "unbalanced labels in train: 'a' 144, 'b' 16; always predicting 'a' would be right for 90.0%"
            in said
        )
    assert seen[0] == seen[1] != seen[2]


def test_every_label_is_in_train_whatever_the_shares():
    labels = np.array([0] * 50 + [1, 2, 2])
    for seed in range(20):
        split = deal(labels, (0.1, 0.9), seed)
        assert set(labels[split == 0]) == {0, 1, 2}


def test_a_text_is_cut_in_the_order_of_its_lines(run, tmp_path):
    lines = [" ".join(["x"] * (i + 1)) + "\n" for i in range(10)]
    (tmp_path / "t.txt").write_text("".join(lines))
    for kind in ("word", "char"):
        flags = ("--tokenizer", kind, "--split", "0.6,0.2,0.2", "--destdir", tmp_path / kind)
        assert run("--trainpref", tmp_path / "t.txt", *flags)[0] == 0
        data = DataDir(tmp_path / kind)
        texts = [
            data.tokenizer.decode(data.corpus(s).read(0, len(data.corpus(s))), data.vocab)
            for s in ("train", "valid", "test")
        ]
        assert texts == ["".join(lines[:6]), "".join(lines[6:8]), "".join(lines[8:])]


def test_empty_rows_are_passed_over_and_counted(run, tmp_path):
    (tmp_path / "e.csv").write_text("text,label\n\ngood,a\n  ,b\n,\nbad,b\n...@,a\n")
    code, out, _ = run("--trainpref", tmp_path / "e.csv", "--destdir", tmp_path / "d")
    assert code == 0
    assert "e.csv: 3 rows without a text were skipped (line 2, 4, 5)" in out
    assert [t for t, _ in items(DataDir(tmp_path / "d"), "train")] == ["good", "bad", ". . ."]


def test_a_folder_without_valid_is_told_so(run, tmp_path):
    table = write(tmp_path, "t.csv", [("good", "a"), ("bad", "b")] * 4)
    _, out, _ = run("--trainpref", table, "--destdir", tmp_path / "one")
    assert "note: tsm-train needs a valid split; --split or --validpref" in out
    with pytest.raises(ValueError, match=r"no valid split; .* from --validpref or --split"):
        task = TASKS.get("classification")
        task(task.Config(data=str(tmp_path / "one"))).check_trainable()
    _, out, _ = run("--trainpref", table, "--split", "0.5,0.5", "--destdir", tmp_path / "two")
    assert out.splitlines()[-1] == f"next: tsm-train {tmp_path / 'two'} --arch plstm_classifier"


def test_a_folder_without_train_holds_every_label(run, tmp_path):
    good, both = (
        write(tmp_path, f"{name}.csv", rows)
        for name, rows in (("g", [("good", "a")] * 4), ("b", [("good", "a"), ("bad", "b")]))
    )
    words = tmp_path / "dict.txt"
    words.write_text("<unk> 0\ngood 1\nbad 1\n")
    flags = [
        "--validpref",
        good,
        "--testpref",
        both,
        "--srcdict",
        words,
        "--destdir",
        tmp_path / "d",
    ]
    code, out, _ = run(*flags)
    assert code == 0 and "unbalanced" not in out
    next_ = f"next: tsm-eval {tmp_path / 'd'} --path CHECKPOINT --gen-subset valid"
    assert out.splitlines()[-1] == next_
    folder = DataDir(tmp_path / "d")
    assert folder.meta.labels == ["a", "b"]
    assert items(folder, "test") == [("good", "a"), ("bad", "b")]


def test_a_byte_order_mark_and_other_encodings(run, fails, tmp_path):
    rows = [("schön", "a"), ("übel", "b")]
    bom = write(tmp_path, "bom.csv", rows, encoding="utf-8-sig")
    assert run("--trainpref", bom, "--destdir", tmp_path / "bom")[0] == 0
    # the invalid byte is far from the start, but within the first buffered read
    latin = write(tmp_path, "latin.csv", [("plain", "a")] * 100 + rows, encoding="latin-1")
    told = ("latin.csv, line 102: not UTF-8", "--encoding, e.g. latin-1")
    fails(run("--trainpref", latin, "--destdir", tmp_path / "no"), *told)
    wide = write(tmp_path, "wide.csv", rows, encoding="utf-16")
    told = "wide.csv, line 1: not UTF-8, but with the byte order mark of UTF-16; accepted: --encoding utf-16"
    fails(run("--trainpref", wide, "--destdir", tmp_path / "no"), told)
    assert run("--trainpref", wide, "--encoding", "utf-16", "--destdir", tmp_path / "wide")[0] == 0
    assert items(DataDir(tmp_path / "wide"), "train") == rows
    cyrillic = write(tmp_path, "cyrillic.csv", [("я", "a"), ("Ё", "b")])
    flags = ("--encoding", "cp1252", "--destdir", tmp_path / "no")
    fails(run("--trainpref", cyrillic, *flags), "cyrillic.csv, line 2: not cp1252")
    for name in ("latin-1", "cp1252"):
        out = tmp_path / name
        assert run("--trainpref", latin, "--encoding", name, "--destdir", out)[0] == 0
        assert items(DataDir(out), "train")[-2:] == [("schön", "a"), ("übel", "b")]
    out = tmp_path / "replaced"
    assert run("--trainpref", latin, "--encoding-errors", "replace", "--destdir", out)[0] == 0
    assert items(DataDir(out), "train")[0] == ("plain", "a")
    assert "schön" not in {text for text, _ in items(DataDir(out), "train")}


def test_no_header_another_delimiter_and_plain_quotes(run, tmp_path):
    (tmp_path / "x.csv").write_text('a;"5" screen\nb;big\n')
    flags = ("--no-header", "--no-quotes", "--delimiter", ";", "--destdir", tmp_path / "d")
    columns = ("--text-column", 2, "--label-column", 1)
    assert run("--trainpref", tmp_path / "x.csv", *columns, *flags)[0] == 0
    assert items(DataDir(tmp_path / "d"), "train") == [('" 5 " screen', "a"), ("big", "b")]


FAULTS = {
    "text,label\na,x\nb,\n": "f.csv:3: the label ('label') is missing",
    "text,stars\na,x\n": "f.csv:2: no column 'label' (--label-column); accepted: 'text', 'stars'",
    "id,volts,label\na,1,x\n": "accepted: 'id', 'volts', 'label'; a table of numbers needs --sequence-col",
    "text;label\na;x\n": "wrong delimiter? --delimiter sets it",
    "text,label\na,x\nb,y,z\n": "f.csv:3: 3 fields; accepted: 2",
    'text,label\na,x\n"b\nc,y\n': "f.csv:3: unexpected end of data; accepted: fields with balanced",
    'text;label\n"a, b";x\n': "f.csv:2: ',' expected after '\"'; accepted: fields with balanced double "
    "quotes (--no-quotes reads quotes as plain characters) (wrong delimiter? --delimiter sets it)",
    "text,label\ra,x\rb,y\r": "f.csv:1: a carriage return in it ends no line; accepted: lines that end in",
    "text,text\na,x\n": "f.csv:1: two columns are called 'text'",
    "": "f.csv is empty",
    "text,label\n": "f.csv has no text",
    "text,label\na,x\nb,x\n": "every row has the label 'x' ('label'); accepted: two labels or more",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_of_a_csv(run, fails, tmp_path, text):
    (tmp_path / "f.csv").write_text(text)
    fails(run("--trainpref", tmp_path / "f.csv", "--destdir", tmp_path / "d"), FAULTS[text])
    assert not (tmp_path / "d").exists()


JSON_FAULTS = {
    '{"text": "a", "label": "x"}\n{"text": "b"\n': "f.jsonl:2: not JSON",
    '["a", "x"]\n': 'f.jsonl:1: \'["a", "x"]\'; accepted: a JSON object on every line',
    '{"text": "a", "label": null}\n': "f.jsonl:1: the label ('label') is missing",
    "[" * 100_000: "f.jsonl:1: not JSON",
    '{"text": "a", "label": "\\ud800"}\n': "f.jsonl:1: not JSON of UTF-8 text",
    '{"text": ["a", "b"], "label": "x"}\n': "f.jsonl:1: 'text' (--text-column) is a list; accepted: a text",
    '{"text": "a", "label": {"x": 1}}\n': "f.jsonl:1: 'label' (--label-column) is a dict; accepted: a text",
}


@pytest.mark.parametrize("text", JSON_FAULTS, ids=range(len(JSON_FAULTS)))
def test_faults_of_json_lines(run, fails, tmp_path, text):
    (tmp_path / "f.jsonl").write_text(text)
    fails(run("--trainpref", tmp_path / "f.jsonl", "--destdir", tmp_path / "d"), JSON_FAULTS[text])


def test_a_label_that_train_has_not_is_named_with_its_line(run, fails, tmp_path):
    train = write(tmp_path, "t.csv", [("a", "x"), ("b", "y")])
    valid = write(tmp_path, "v.csv", [("a", "x"), ("b", "z")])
    flags = ("--trainpref", train, "--validpref", valid, "--destdir", tmp_path / "d")
    fails(run(*flags), "v.csv:3: the label 'z' is not in the training split; accepted: 'x', 'y'")


def test_flags_that_do_not_go_together(run, fails, tmp_path):
    table, text = write(tmp_path, "t.csv"), tmp_path / "t.txt"
    text.write_text("a b\n")
    out = ("--destdir", tmp_path / "d")
    fails(run("--trainpref", table, "--split", "0.5,0.6", *out), "--split is '0.5,0.6'", "sum to 1")
    fails(
        run("--trainpref", table, "--validpref", table, "--split", "0.5,0.5", *out),
        "--split divides",
    )
    fails(run("--trainpref", table, "--validpref", text, *out), "several kinds")
    fails(run("--trainpref", text, "--label-column", "y", *out), "--label-column requires a table")
    for mark in ("ab", '"', "\n"):
        fails(run("--trainpref", table, "--delimiter", mark, *out), f"--delimiter is {mark!r}")
    for name in ("klingon", "base64"):
        fails(run("--trainpref", table, "--encoding", name, *out), f"--encoding is {name!r}")
    fails(run("--trainpref", text, "--split", "0.5,0.5", *out), "1 lines cannot be split")
    tiny = write(tmp_path, "tiny.csv", [("a", "x"), ("b", "y")])
    fails(run("--trainpref", tiny, "--split", "0.8,0.2", *out), "valid gets none of the 2 rows")


def test_an_earlier_output_is_replaced_only_when_asked(run, fails, tmp_path):
    table, out = write(tmp_path, "t.csv"), tmp_path / "d"
    assert run("--trainpref", table, "--destdir", out)[0] == 0
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    other = write(tmp_path, "o.csv", [("a", "x"), ("b", "y")])
    fails(run("--trainpref", other, "--destdir", out), "holds an earlier output", "--overwrite")
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert run("--trainpref", other, "--destdir", out, "--overwrite")[0] == 0
    assert DataDir(out).meta.labels == ["x", "y"]


def test_a_table_may_be_named_otherwise_or_compressed(run, tmp_path):
    data = Path(write(tmp_path, "t.csv")).read_bytes()
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(data))
    (tmp_path / "t.data").write_bytes(data)
    assert run("--trainpref", tmp_path / "t.csv.gz", "--destdir", tmp_path / "a")[0] == 0
    flags = ("--format", "csv", "--destdir", tmp_path / "b")
    assert run("--trainpref", tmp_path / "t.data", *flags)[0] == 0
    assert items(DataDir(tmp_path / "a"), "train") == items(DataDir(tmp_path / "b"), "train")


class FakeDataset(list):
    """The parts of datasets.Dataset that the reader uses."""

    names = ("neg", "pos")

    @property
    def features(self):
        return {"text": None, "label": SimpleNamespace(int2str=lambda i: self.names[i])}


def test_a_hugging_face_folder(run, fails, tmp_path, monkeypatch):
    """The package `datasets` is not needed: the test replaces load_from_disk, which the reader uses."""
    rows = [{"text": "good", "label": 1}, {"text": "bad", "label": 0}] * 3
    found = {"train": FakeDataset(rows), "validation": FakeDataset(rows[:2])}
    fake = SimpleNamespace(load_from_disk=lambda path: found)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    (tmp_path / "hf").mkdir()
    assert run("--hf-dataset", tmp_path / "hf", "--destdir", tmp_path / "d")[0] == 0
    assert items(DataDir(tmp_path / "d"), "valid") == [("good", "pos"), ("bad", "neg")]
    others = {"when": datetime(2024, 1, 1), "image": b"png", "tokens": ["good"]}  # not read
    found["train"][0] |= others
    assert run("--hf-dataset", tmp_path / "hf", "--destdir", tmp_path / "o")[0] == 0
    assert items(DataDir(tmp_path / "o"), "train") == items(DataDir(tmp_path / "d"), "train")
    flags = ("--text-column", "tokens", "--destdir", tmp_path / "e")
    told = "hf/train:1: 'tokens' (--text-column) is a list; accepted: a text"
    fails(run("--hf-dataset", tmp_path / "hf", *flags), told)
    found["train"].append({"text": "none", "label": -1})
    out = ("--destdir", tmp_path / "e")
    fails(run("--hf-dataset", tmp_path / "hf", *out), "hf/train:7: the label ('label') is missing")
    del found["train"][6]
    rows = found.pop("train")
    fails(run("--hf-dataset", tmp_path / "hf", *out), "no train split to make the dictionary from")
    found["train"] = rows  # after the other split
    monkeypatch.setattr(FakeDataset, "names", ("neg", "pos", "odd"))
    found["validation"] = FakeDataset([{"text": "so so", "label": 2}])
    told = "hf/validation:1: the label 'odd' is not in the training split; accepted: 'neg', 'pos'"
    fails(run("--hf-dataset", tmp_path / "hf", *out), told)
    found["extra"] = rows
    fails(run("--hf-dataset", tmp_path / "hf", *out), "has the splits validation, train, extra")
    monkeypatch.setitem(sys.modules, "datasets", None)
    fails(run("--hf-dataset", tmp_path / "hf", *out), "pip install datasets")


MEMORY = """
import resource, sys
from tsm.plugin.cli.preprocess import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
sys.exit(code)
"""


def test_memory_does_not_grow_with_the_table(tmp_path):
    """20 MB of texts in 10,000 rows need less than 20 MB more memory than a tiny table."""
    peak = []
    for rows in (10, 10_000):
        path = write(tmp_path, f"{rows}.csv", [("word " * 400, "ab"[i % 2]) for i in range(rows)])
        words = ["--trainpref", path, "--destdir", str(tmp_path / f"d{rows}")]
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, *words], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        peak.append(int(done.stdout.splitlines()[-1]))
    assert peak[1] - peak[0] < 20, peak
