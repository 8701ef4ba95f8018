"""tsm.export.export and tsm-export: a verified file or none, and errors that say what is accepted."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from small_models import small
from tsm.export import VerifyError, entry, export
from tsm.export.cli import main
from tsm.export.common.exported import open_exported
from tsm.export.common.formats import MODULES
from tsm.export.onnx.nodes import OPERATORS, Graph
from tsm.plugin import build_model
from tsm.plugin.trained import open_trained


@pytest.fixture
def run_export(capsys):
    """Runs `tsm-export ...`; returns exit code, stdout, stderr."""

    def call(*args):
        capsys.readouterr()
        code = main([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def broken(monkeypatch):
    """An exporter with a wrong rule: tanh is written as a sigmoid."""
    rule = lambda graph, inputs, name: Graph.add(graph, "Sigmoid", inputs, name)  # noqa: E731
    monkeypatch.setitem(OPERATORS, "tanh", rule)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_python(tmp_path):
    model = small("plstm_lm").train()
    report = export(model, tmp_path / "m.onnx", format="onnx", recurrence="loop", steps=50)
    assert report.passed and report.recurrence == "loop"
    assert names(tmp_path) == ["m.onnx", "m.onnx.drift.png", "m.onnx.report.json"]
    assert report.facts["bytes"] == (tmp_path / "m.onnx").stat().st_size
    assert model.training, "the caller's model was changed"
    found = json.loads((tmp_path / "m.onnx.report.json").read_text())
    assert found["passed"] and found["format"] == "onnx" and found["dtype"] == "float32"
    runners = {check["runner"] for check in found["checks"]}
    assert runners == {"m.onnx", "ONNX Runtime CPU"}, "onnx.reference gets Loop wrong"


def test_scan_is_checked_by_two_consumers(tmp_path):
    report = export(small("lstm_lm").double(), tmp_path / "m.onnx", "onnx", steps=0)
    assert {c.runner for c in report.checks} == {"m.onnx", "ONNX Runtime CPU", "onnx.reference"}
    assert names(tmp_path) == ["m.onnx", "m.onnx.report.json"]


@pytest.mark.parametrize("format", ["onnx", "tsm"])
def test_one_output(format, tmp_path):
    """A model with one output: its decoder is a matrix with one row."""
    model = build_model("plstm_tagger", input_size=2, num_classes=1, decoder_hidden_size=4)
    assert export(model, tmp_path / "m", format, steps=0).passed


def test_failure_leaves_no_file(broken, tmp_path):
    with pytest.raises(VerifyError, match="is not the model it was made from") as caught:
        export(small("lstm_lm"), tmp_path / "m.onnx", "onnx", steps=30)
    assert not caught.value.report.passed
    assert names(tmp_path) == ["m.onnx.drift.png", "m.onnx.report.json"]
    assert json.loads((tmp_path / "m.onnx.report.json").read_text())["passed"] is False


def test_failure_leaves_an_earlier_file_alone(broken, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"earlier")
    with pytest.raises(VerifyError):
        export(small("lstm_lm"), tmp_path / "m.onnx", "onnx", steps=0)
    assert (tmp_path / "m.onnx").read_bytes() == b"earlier"


def test_a_report_is_there_only_with_its_file(tmp_path, monkeypatch):
    """Also if the export is interrupted just before or after the file gets its name."""
    path, replace = tmp_path / "m.onnx", os.replace
    export(small("lstm_lm"), path, "onnx", steps=30)
    before = path.read_bytes()
    assert names(tmp_path) == ["m.onnx", "m.onnx.drift.png", "m.onnx.report.json"]
    for done in (False, True):

        def interrupted(old, new, done=done):
            if done or Path(new) != path:
                replace(old, new)
            if Path(new) == path:
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(entry.os, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                export(small("lstm_lm", decoder_hidden_size=5), path, "onnx", steps=0)
        assert names(tmp_path) == ["m.onnx"] and (path.read_bytes() == before) is not done


def test_a_report_that_cannot_be_written(tmp_path, monkeypatch):
    def full(report):
        raise OSError(errno.ENOSPC, "No space left on device", str(report.path) + ".report.json")

    monkeypatch.setattr(entry, "write_report", full)
    with pytest.raises(OSError, match="the export is in place, but not its report"):
        export(small("lstm_lm"), tmp_path / "m.onnx", "onnx", steps=0)
    assert names(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("format", [name for name in MODULES if name != "triton"])
def test_a_folder_is_never_replaced(format, tmp_path):
    """The export checks this before doing any work, and again at the end, because the folder may be created in
    the meantime."""
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep" / "mine").write_text("mine")
    with pytest.raises(ValueError, match="keep is a folder; accepted: the name of a file"):
        export(small("lstm_lm"), tmp_path / "keep", format)
    stage = tmp_path / "stage"
    stage.mkdir()
    (stage / "keep").write_text("ours")
    with pytest.raises(IsADirectoryError):
        entry._move(stage, tmp_path / "keep")
    assert (tmp_path / "keep" / "mine").read_text() == "mine"


def test_interrupted_leaves_nothing(monkeypatch, tmp_path):
    from tsm.export.onnx import model as onnx_model

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(onnx_model, "check", stop)
    with pytest.raises(KeyboardInterrupt):
        export(small("lstm_lm"), tmp_path / "m.onnx", "onnx", steps=0)
    assert names(tmp_path) == []


def test_full_disk(tmp_path):
    """A process that may write at most 20 kB to a file."""
    code = f"""
import resource, signal, sys
sys.path[:0] = {sys.path!r}
from small_models import small
from tsm.export import export
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
model = small("lstm_lm", decoder_hidden_size=64)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    export(model, {str(tmp_path / "m.onnx")!r}, "onnx", steps=0)
except OSError as error:
    print(error)
"""
    assert hasattr(resource, "RLIMIT_FSIZE")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "File too large; nothing was written" in done.stdout, done.stderr
    assert str(tmp_path / "m.onnx") in done.stdout
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, part",
    [
        ({"format": "onxn"}, "accepted: tsm, onnx, torchscript, pt2, triton"),
        ({"format": "onnx", "dtype": "float8"}, "accepted: float32"),
        ({"format": "onnx", "recurrence": "lstm_op"}, "accepted for this cell: scan, loop"),
        ({"format": "onnx", "recurrence": "unrolled"}, "for any T: scan, loop"),
        ({"format": "onnx", "steps": -1}, "an integer of at least 0"),
        ({"format": "onnx", "inputs": "dt"}, "accepted: a list of names"),
        ({"format": "pt2", "inputs": ["dt"]}, "accepted: a list of names with format 'onnx'"),
        ({"format": "tsm", "recurrence": "scan"}, "chunks of any size"),
        ({"format": "onnx", "text": [1]}, "at least 2 tokens"),
    ],
)
def test_bad_arguments(arguments, part, tmp_path):
    with pytest.raises(ValueError, match=part):
        export(small("plstm_lm"), tmp_path / "m", **arguments)
    assert names(tmp_path) == []


def test_bad_models(tmp_path):
    with pytest.raises(ValueError, match="is a dict; accepted: a model of tsm"):
        export({}, tmp_path / "m.onnx", "onnx")
    model = small("plstm_lm")
    model.layers[0].weight_h.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"weight_h has a number that is not finite"):
        export(model, tmp_path / "m.onnx", "onnx")
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        export(small("plstm_lm"), tmp_path / "nowhere" / "m.onnx", "onnx")
    assert names(tmp_path) == []


def test_command(word, run_export, tmp_path):
    flags = ("--path", word.path, "--output", tmp_path / "m.onnx", "--verify-steps", 100)
    code, out, err = run_export("onnx", *flags, "--data", word.data, "--data-steps", 200)
    assert code == 0, err
    lines = out.splitlines()
    assert all(line.startswith("-[✓] ") for line in lines[:-1])
    assert lines[0].startswith("-[✓] m.onnx: every tensor: ") and "bit for bit" in lines[0]
    assert any("data: perplexity" in line for line in lines), out
    assert "checks passed" in lines[-1]
    assert names(tmp_path) == ["m.onnx", "m.onnx.drift.png", "m.onnx.report.json"]


def test_command_fails_with_exit_code_1(word, broken, run_export, tmp_path):
    flags = ("--path", word.path, "--output", tmp_path / "m.onnx", "--verify-steps", 0)
    code, out, err = run_export("onnx", *flags)
    assert code == 1
    assert "-[x] ONNX Runtime CPU" in out
    assert "checks failed" in err and "was not written" in err and err.count("\n") == 1
    assert names(tmp_path) == ["m.onnx.report.json"]


@pytest.mark.parametrize("text, inputs", [("none", []), ("dt,lengths", ["lengths", "dt"])])
def test_command_chooses_the_inputs(text, inputs, word, run_export, tmp_path):
    flags = ("--path", word.path, "--output", tmp_path / "m.onnx", "--verify-steps", 30)
    code, out, err = run_export("onnx", *flags, "--inputs", text)
    assert code == 0, out + err
    found = [value.name for value in onnx.load(tmp_path / "m.onnx").graph.input]
    assert [name for name in found if not name.startswith("state_")] == ["x", *inputs]


def test_command_bad_input(word, run_export, tmp_path):
    output = ("--output", tmp_path / "m.onnx")
    for args, part in (
        (("onxn", "--path", word.path, *output), "onxn"),
        (("onnx", "--path", tmp_path / "none.pt", *output), "does not exist"),
        (("onnx", "--path", __file__, *output), "is not a tsm checkpoint"),
        (
            ("onnx", "--path", word.path, "--output", "/proc/none/m.onnx"),
            "/proc/none does not exist",
        ),
        (("onnx", "--path", word.path, *output, "--recurrence", "lstm_op"), "scan, loop, unrolled"),
        (
            ("onnx", "--path", word.path, *output, "--recurrence", "unrolled"),
            "for any T: scan, loop",
        ),
        (("onnx", "--path", word.path, *output, "--dtypes", "int8"), "--dtype"),
        (
            ("onnx", "--path", word.path, *output, "--inputs", "dt,x"),
            "some of lengths, dt, or none",
        ),
        (("tsm", "--path", word.path, *output, "--inputs", "none"), "with format 'onnx'"),
        (("onnx", "--path", word.path, *output, "--data", tmp_path), str(tmp_path)),
    ):
        code, _, err = run_export(*args)
        assert code == 2, (args, err)
        assert part in err and err.count("\n") == 1 and "Traceback" not in err, err
    assert names(tmp_path) == []


def test_unwritable_folder(word, run_export):
    code, _, err = run_export("onnx", "--path", word.path, "--output", "/proc/m.onnx")
    assert code == 2 and "/proc/m.onnx" in err and "nothing was written" in err


def test_text_is_compared(word, tmp_path):
    trained = open_trained(word.path)
    tokens = [
        i for line in word.text.splitlines()
        for i in trained.tokenizer.encode_line(line, trained.vocab)
    ]  # fmt: skip
    report = export(trained, tmp_path / "m.onnx", "onnx", text=np.array(tokens), steps=0)
    found, exact = report.text["ONNX Runtime CPU"], report.text["float64"]
    assert found["perplexity"] == pytest.approx(exact["perplexity"], rel=1e-6)


@pytest.mark.parametrize(
    "format, dtype", [("onnx", "int8"), ("onnx", "float16"), ("tsm", "int8"), ("tsm", "bfloat16")]
)
def test_below_float32_quality_is_judged(word, format, dtype, run_export, tmp_path):
    """Quality is measured on data or on sampled text and must be within a limit; the file records the
    result."""
    flags = (
        "--path",
        word.path,
        "--output",
        tmp_path / "m",
        "--verify-steps",
        50,
        "--dtype",
        dtype,
    )
    for number, data in enumerate(((), ("--data", word.data, "--data-steps", 300))):
        code, out, err = run_export(format, *flags, *data, "--quality-limit", 0.02)
        assert code == 0, out + err
        assert "limit 2.0e-02, " in out
        (one,) = open_exported(tmp_path / "m")
        found = one.proof["criterion"]
        assert found["name"] == "perplexity" and found["found"] <= found["limit"] == 0.02
        assert found["on"] == ("2,048 tokens that it generated", "data")[number]
        code, out, _ = run_export("verify", tmp_path / "m")
        assert code == 0 and f"perplexity {found['found']:.1e} away" in out
    code, out, err = run_export(format, *flags, "--quality-limit", 1e-12)
    assert code == 1 and "-[x] " in out and "was not written" in err
    code, _, err = run_export(format, *flags, "--quality-limit", 0)
    assert code == 2 and "a number above 0" in err


def test_a_model_of_unbounded_cells(tmp_path):
    """Within 10,000 steps, nru in float32 diverges from float64, in PyTorch as well."""
    report = export(small("nru_lm"), tmp_path / "m.tsm")
    assert "compared up to step" in report.checks[-1].note


def test_runs_without_matplotlib(monkeypatch, tmp_path):
    """The curve is in the report; only the figure is missing."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    report = export(small("lstm_lm"), tmp_path / "m.onnx", "onnx", "loop", steps=20)
    assert report.passed
    assert names(tmp_path) == ["m.onnx", "m.onnx.report.json"]


def test_accuracy_on_the_task_it_was_trained_for(waves, run_export, tmp_path):
    """--data without a folder uses the data of the training task, here waves with uneven time steps and
    lengths."""
    flags = ("--path", waves, "--output", tmp_path / "m.onnx", "--verify-steps", 50)
    code, out, err = run_export("onnx", *flags, "--data", "--data-steps", 1000)
    assert code == 0, out + err
    line = next(line for line in out.splitlines() if ": data: " in line)
    assert "accuracy" in line and "(+0.00)" in line
    found = json.loads((tmp_path / "m.onnx.report.json").read_text())["text"]
    assert set(found) == {"float64", "ONNX Runtime CPU"}
    assert found["float64"]["loss"] == pytest.approx(found["ONNX Runtime CPU"]["loss"], rel=1e-4)
