"""A client that knows nothing of tsm: a process with onnxruntime and numpy, and the file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tsm.export import export
from tsm.export.verify_reference import Reference
from tsm.export.verify_text import Text
from tsm.plugin.trained import open_trained

CLIENT = Path(__file__).parents[2] / "examples" / "onnx_client.py"
ALLOWED = ("numpy", "onnxruntime")
FORBIDDEN = ("tsm", "torch", "onnx")
# Runs the client with modules that must not be imported made impossible, and says what was.
GUARD = """
import runpy, sys
for name in {forbidden!r}:
    sys.modules[name] = None
sys.argv = [{client!r}, {model!r}]
runpy.run_path({client!r}, run_name="__main__")
"""


def run_client(model: Path, text: str) -> str:
    code = GUARD.format(forbidden=FORBIDDEN, client=str(CLIENT), model=str(model))
    done = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def perplexity(path: Path, text: str) -> float:
    """In float64, by tsm."""
    import numpy as np

    trained = open_trained(path)
    lines = text.splitlines(keepends=trained.tokenizer.unit == "block")
    ids = [i for line in lines for i in trained.tokenizer.encode_line(line, trained.vocab)]
    return Text(np.array(ids)).score(Reference(trained.model))["perplexity"]


@pytest.mark.parametrize("form, chunk_size", [("scan", None), ("unrolled", 5)])
def test_client_streams_words(word, form, chunk_size, tmp_path):
    model = tmp_path / "model.onnx"
    export(word.path, model, "onnx", form, chunk_size, steps=20)
    said = run_client(model, word.text)
    assert f"perplexity {perplexity(word.path, word.text):.4f};" in said


def test_client_streams_characters(char, tmp_path):
    model = tmp_path / "model.onnx"
    export(char.path, model, "onnx", "loop", steps=20)
    said = run_client(model, char.text)
    assert f"perplexity {perplexity(char.path, char.text):.4f};" in said


def test_client_is_short_and_alone():
    lines = CLIENT.read_text().splitlines()
    assert len(lines) <= 60
    imported = {
        line.split()[1].split(".")[0] for line in lines if line.startswith(("import", "from"))
    }
    assert imported <= {*ALLOWED, "json", "sys"}
