"""What tsm-preprocess says of tables and arrays that it cannot read as sequences of numbers."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from own_series import CSV, LABELLED

FAULTS = {
    CSV.replace("0.25", "0"): "d.csv:3: the time since the previous row is 0; accepted: above 0",
    CSV.replace("-0.5,2", "nan,2"): (
        "d.csv:3: missing numbers: 1 in 1 of 5 rows (a in line 3); accepted: a number in every field; fill"
    ),
    CSV.replace("0.25,-0.5", " NA ,").replace("v,1,2.5,4", "v,null,N/A,None").replace("3.5", ""): (
        "d.csv:3: missing numbers: 6 in 3 of 5 rows (a in line 3, gap in line 3, a in line 6, b in line 6, "
        "gap in line 6, ...); accepted: "
    ),
    CSV.replace("-0.5,2", ",2").replace("2.5,4", "see log,4"): (
        "d.csv:6: a is 'see log'; accepted: a finite number; --value-columns A,B chooses the inputs"
    ),
    CSV.replace("u,1,0.5", "u,1,see log").replace("-0.5,2", ",2"): (
        "d.csv:2: a is 'see log'; accepted: a finite number; --value-columns A,B chooses the inputs"
    ),
    CSV.replace("u,1,", "u,see log,").replace("v,0.5", "v,"): (
        "d.csv:2: gap is 'see log'; accepted: a finite number\n"
    ),
    CSV.replace("u,1,0.5,1", "u,1,,").replace("-0.5,2", ","): (
        "4 in 2 of 5 rows (a in line 2, b in line 2, a in line 3, b in line 3); accepted: a number in every "
        "field; fill them in, or leave out these rows; --value-columns A,B chooses the inputs\n"
    ),
    CSV.replace("v,0.5", "v,"): (
        "(gap in line 7); accepted: a number in every field; fill them in, or leave out these rows\n"
    ),
    CSV.replace("-0.5,2", ",2").replace("2.5,4", '"2,5",4'): (
        "d.csv:6: a is '2,5'; accepted: a finite number without commas, decimals after a point"
    ),
    CSV.replace("-0.5,2", "inf,2"): "d.csv:3: a is 'inf'; accepted: a finite number",
    CSV.replace(
        "2.5,4", "two,4"
    ): "d.csv:6: a is 'two'; accepted: a finite number; --value-columns A,B",
    CSV.replace(
        "2.5,4", '"2,5",4'
    ): "d.csv:6: a is '2,5'; accepted: a finite number without commas, decimals after a point",
    CSV.replace(
        "2.5,4,y", "2.5,4,x"
    ): "d.csv:6: the target changes within the sequence, kind from 'y' to 'x'",
    CSV.replace("2.5,4,y", "2.5,4,"): "d.csv:6: the label ('kind') is missing",
    CSV + "u,1,1,1,x\n": "d.csv:8: sequence 'u' again after another one",
    CSV.replace("v,0.5", ",0.5"): "d.csv:7: the sequence ('id') is missing; accepted: its name in",
    CSV.replace(",y\n", ",x\n"): "every label is 'x'; accepted: two labels or more",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_faults(run, fails, tmp_path, text):
    (tmp_path / "d.csv").write_text(text)
    fails(
        run("--trainpref", tmp_path / "d.csv", *LABELLED, "--destdir", tmp_path / "d"), FAULTS[text]
    )


ROW = '{"id": "s", "gap": 1, "a": 1, "kind": "x"}\n'
FAULTS_OF_JSON = {  # of a second row
    '{"id": "s", "gap": 1, "kind": "x"}': "no column 'a'",
    '{"id": "s", "gap": 1, "a": [null], "kind": "x"}': "'a' (--value-columns) is a list",
    '{"id": "s", "gap": 1, "a": null, "kind": "x"}': "missing numbers: 1 in 1 of 2 rows (a in line 2)",
    '{"id": "s", "gap": 1, "a": NaN, "kind": "x"}': "missing numbers: 1 in 1 of 2 rows (a in line 2)",
}


@pytest.mark.parametrize("row", FAULTS_OF_JSON)
def test_faults_of_json_lines(run, fails, tmp_path, row):
    (tmp_path / "d.jsonl").write_text(f"{ROW}{row}\n")
    given = run("--trainpref", tmp_path / "d.jsonl", *LABELLED, "--destdir", tmp_path / "d")
    fails(given, FAULTS_OF_JSON[row])


@pytest.mark.parametrize("mark", ["-nan", "<NA>", "#N/A", " ", "null"])
def test_marks_of_missing_numbers(run, fails, tmp_path, mark):
    (tmp_path / "d.csv").write_text(CSV.replace("-0.5,2", f"{mark},2"))
    given = run("--trainpref", tmp_path / "d.csv", *LABELLED, "--destdir", tmp_path / "d")
    fails(given, "d.csv:3: missing numbers: 1 in 1 of 5 rows (a in line 3)")


ARRAYS = {
    "no array 'x'": {"y": np.zeros(2)},
    "x is float64 (4,)": {"x": np.zeros(4), "y": np.zeros(4)},
    "lengths are int64 (2,); accepted: 2 integers from 1 to 3": {"lengths": np.array([4, 1])},
    "dt is float64 (2, 2)": {"dt": np.ones((2, 2))},
    "row 1: dt is -1": {"dt": -np.ones((2, 3))},
    "row 2: x has a number that is not finite": {"x": np.full((2, 3), [[1.0], [np.inf]])},
    "y is int64 (3,)": {"y": np.arange(3)},
    "row 2: y has an empty label": {"y": np.array(["a", ""])},
    "n.npz: no": None,
}


@pytest.mark.parametrize("said", ARRAYS)
def test_faults_of_npz(run, fails, tmp_path, said):
    given = ARRAYS[said]
    path = tmp_path / "n.npz"
    if given is None:
        path.write_bytes(b"PK no archive")
        said = "is not an .npz file"
    elif said.startswith("no array"):
        np.savez(path, **given)
    else:
        np.savez(path, **{"x": np.ones((2, 3)), "y": np.arange(2), **given})
    fails(run("--trainpref", path, "--destdir", tmp_path / "d"), said)


def test_objects_in_npz_are_never_unpickled(run, fails, tmp_path):
    np.savez(tmp_path / "n.npz", x=np.array([[1, None]], dtype=object), y=np.arange(1))
    fails(run("--trainpref", tmp_path / "n.npz", "--destdir", tmp_path / "d"), "plain numbers")


def test_flags_of_numbers(run, fails, tmp_path):
    (tmp_path / "d.csv").write_text(CSV)
    table = ("--trainpref", tmp_path / "d.csv", "--destdir", tmp_path / "d")
    fails(run(*table, "--dt-column", "gap"), "--dt-column requires --sequence-column")
    fails(
        run(*table, "--sequence-column", "id"), "--label-column NAME (classes) or --target-columns"
    )
    fails(run(*table, *LABELLED, "--target-columns", "a"), "(numbers) and not both")
    fails(run(*table, *LABELLED, "--tokenizer", "word"), "are for texts")
    fails(run(*table, *LABELLED, "--time-column", "gap"), "accepted: one of them")
    twice = "--value-columns is 'a,b,a'; accepted: every column once"
    fails(run(*table, *LABELLED, "--value-columns", "a,b,a"), twice)
    targets = ("--sequence-column", "id", "--target-columns", "a,a")
    fails(run(*table, *targets), "--target-columns is 'a,a'; accepted: every column once")


def test_a_column_of_values_needs_a_name(run, fails, tmp_path):
    """pandas writes its index as a column without a name. A checkpoint with such a name could not be opened."""
    text = "".join(f"{'' if i == 0 else i},{row}\n" for i, row in enumerate(CSV.split()))
    (tmp_path / "p.csv").write_text(text)
    flags = ("--trainpref", tmp_path / "p.csv", *LABELLED, "--destdir", tmp_path / "d")
    fails(run(*flags), "p.csv: a column of values has no name", "--value-columns A,B chooses")
    code, out, err = run(*flags, "--value-columns", "a,b")
    assert (code, err) == (0, "") and "inputs: 2 (a, b), with dt" in out


def test_a_target_of_numbers_that_changes(run, fails, tmp_path):
    (tmp_path / "d.csv").write_text("id,v,a,b\ns,1,1,2\ns,1,1,2\ns,1,1,3\n")
    flags = ("--sequence-column", "id", "--target-columns", "a,b", "--destdir", tmp_path / "d")
    fails(
        run("--trainpref", tmp_path / "d.csv", *flags), "d.csv:4: the target", "b from '2' to '3'"
    )


def test_a_date_is_no_time(run, fails, tmp_path):
    (tmp_path / "d.csv").write_text("id,at,v,kind\ns,2024-01-01 10:00,1,x\n")
    flags = ("--sequence-column", "id", "--time-column", "at", "--label-column", "kind")
    told = (
        "at is '2024-01-01 10:00'; accepted: a finite number, e.g. of seconds; dates are not read"
    )
    fails(run("--trainpref", tmp_path / "d.csv", *flags, "--destdir", tmp_path / "d"), told)
    for row, told in (
        (
            "s,,1,x",
            "(at in line 3); accepted: a number in every field; fill them in, or leave out these rows\n",
        ),
        (
            's,,1,x\ns,"1,5",1,x',
            "at is '1,5'; accepted: a finite number without commas, decimals after",
        ),
    ):
        (tmp_path / "d.csv").write_text(f"id,at,v,kind\ns,1,1,x\n{row}\n")
        fails(run("--trainpref", tmp_path / "d.csv", *flags, "--destdir", tmp_path / "d"), told)


def test_a_shape_below_zero_names_file_and_array(run, fails, tmp_path):
    path = tmp_path / "n.npz"
    np.savez(path, x=np.zeros((5, 1)), y=np.arange(5))
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["x.npy"] = parts["x.npy"].replace(b"(5, 1), ", b"(-5, 1),")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    said = "n.npz:x.npy: float64 (-5, 1); accepted: plain numbers"
    fails(run("--trainpref", path, "--destdir", tmp_path / "d"), said)
