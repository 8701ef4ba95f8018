"""A client that does not use tsm: a process with onnxruntime, numpy and the file."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tsm.export import export
from tsm.export.verify.data import Text
from tsm.export.verify.quality import measure
from tsm.export.verify.reference import Reference
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.trained import open_trained

from .conftest import run_train

CLIENT = Path(__file__).parents[2] / "examples" / "onnx_client.py"
ALLOWED = ("numpy", "onnxruntime")
FORBIDDEN = ("tsm", "torch", "onnx")
# Runs the client with forbidden modules blocked, and reports which were imported.
GUARD = """
import runpy, sys
for name in {forbidden!r}:
    sys.modules[name] = None
sys.argv = [{client!r}, {model!r}]
runpy.run_path({client!r}, run_name="__main__")
"""


def run_client(model: Path, text: str) -> subprocess.CompletedProcess[str]:
    code = GUARD.format(forbidden=FORBIDDEN, client=str(CLIENT), model=str(model))
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return subprocess.run(
        [sys.executable, "-c", code],
        input=text,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, **ascii_only},
    )


def said(model: Path, text: str) -> str:
    """What the client prints when it succeeds, without a warning from ONNX Runtime."""
    done = run_client(model, text)
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr
    return done.stdout


def perplexity(path: Path, text: str) -> float:
    """In float64, by tsm."""
    import numpy as np

    trained = open_trained(path)
    lines = text.splitlines(keepends=trained.tokenizer.unit == "block")
    ids = [i for line in lines for i in trained.tokenizer.encode_line(line, trained.vocab)]
    (exact,) = measure(Text(np.array(ids)), [Reference(trained.model)], "perplexity")
    return exact.values["perplexity"]


@pytest.mark.parametrize(
    "form, chunk_size, inputs",
    [("scan", None, None), ("unrolled", 5, None), ("unrolled", 5, ["lengths"]), ("loop", None, [])],
)
def test_client_streams_words(word, form, chunk_size, inputs, tmp_path):
    model = tmp_path / "model.onnx"
    export(word.path, model, "onnx", form, chunk_size, inputs=inputs, steps=20)
    assert f"perplexity {perplexity(word.path, word.text):.4f};" in said(model, word.text)


def test_client_streams_characters(char, tmp_path):
    model = tmp_path / "model.onnx"
    export(char.path, model, "onnx", "loop", steps=20)
    assert f"perplexity {perplexity(char.path, char.text):.4f};" in said(model, char.text)


def test_client_classifies_reviews(tmp_path):
    """The client labels each line of the raw text as the model does."""
    rows = [("A good film, isn't it?<br />I'd see it again!", "yes"), ("It's bad; don't.", "no")]
    data, run, model = tmp_path / "data", tmp_path / "run", tmp_path / "model.onnx"
    table = tmp_path / "rows.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *(rows * 20)])
    split = ["--trainpref", str(table), "--split", ".5,.25,.25", "--destdir", str(data)]
    assert preprocess(["--format", "csv", *split]) == 0
    size = ("--decoder-embed-dim", "8", "--decoder-hidden-size", "8")
    path = run_train(data, run, "plstm_classifier", *size, "--batch-size", "8")
    export(path, model, "onnx", "unrolled", 5, steps=20)
    trained, told = open_trained(path), []
    for text, _ in rows:
        x = torch.tensor([trained.tokenizer.encode_line(text, trained.vocab)])
        p = trained.model(x)[0].softmax(-1)[0]
        told.append(f"{trained.labels[p.argmax()]}\t{p.max():.4f}")
    text = "".join(f"{text}\n \n\n" for text, _ in rows)
    assert said(model, text).splitlines() == told
    assert len(set(told)) == 2


def test_client_explains_itself():
    done = subprocess.run([sys.executable, CLIENT, "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "model.onnx < text" in done.stdout and not done.stderr


def test_client_says_what_is_wrong(word, char, tmp_path):
    """The client prints one sentence, in any locale, if the text is too short or has a symbol unknown to the
    model."""
    too_short = "the text has fewer than two tokens"
    for trained, text, message in [
        (word, "", too_short),
        (word, "\n", too_short),  # <eos>
        (char, "t", too_short),
        (word, "the zebra\n", "'zebra' is not in the dictionary, which has no <unk>"),
        (char, "the Ж", "'\\u0416' is not in the dictionary, which has no <unk>"),
    ]:
        model = tmp_path / f"{trained.path.parent.name}.onnx"
        if not model.exists():
            export(trained.path, model, "onnx", "scan", steps=20)
        done = run_client(model, text)
        assert done.returncode == 1 and done.stdout == ""
        assert "Traceback" not in done.stderr and message in done.stderr.splitlines()[-1]


def test_client_needs_lengths_to_fill_up_a_chunk(word, tmp_path):
    model = tmp_path / "model.onnx"
    export(word.path, model, "onnx", "unrolled", 5, inputs=["dt"], steps=20)
    done = run_client(model, word.text)
    assert done.returncode == 1 and "the file must have lengths" in done.stderr


def test_client_is_short_and_alone():
    lines = CLIENT.read_text().splitlines()
    assert len(lines) <= 100
    imported = {
        line.split()[1].split(".")[0] for line in lines if line.startswith(("import", "from"))
    }
    assert imported <= {*ALLOWED, "argparse", "json", "re", "sys"}
