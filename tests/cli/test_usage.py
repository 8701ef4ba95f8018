"""If something on a command line is missing or unexpected, the message says what is accepted."""

from __future__ import annotations

import pytest

from tsm.export.cli import main as export
from tsm.plugin.cli.eval import main as evaluate
from tsm.plugin.cli.predict import main as predict
from tsm.plugin.cli.preprocess import main as preprocess


@pytest.mark.parametrize(
    ("main", "argv", "said"),
    [
        (
            export,
            "--path a.pt --output b",
            "missing: FORMAT; accepted: tsm-export FORMAT --path CKPT --output FILE [flags]; "
            "FORMAT: tsm, onnx, torchscript, pt2, triton\n",
        ),
        (export, "onnx a.pt", "missing: --path, --output; accepted: tsm-export FORMAT --path"),
        (evaluate, "a.pt", "missing: --path; accepted: tsm-eval [DATA] --path CKPT [flags]\n"),
        (preprocess, "a.csv --destdir d", "'a.csv' is unexpected; accepted: tsm-preprocess --trainpref"),
        (preprocess, "--trainpref a.csv", "missing: --destdir; accepted: tsm-preprocess --trainpref"),
        (preprocess, "--text-colum t --destdir d", "did you mean --text-column"),
        (predict, "{run}", "{run} is a folder; accepted: {run}/checkpoint_best.pt, or a .tsm file\n"),
        (predict, "{run}/a.pt", "{run}/a.pt does not exist; accepted: a checkpoint, or a .tsm file\n"),
    ],
)  # fmt: skip
def test_the_answer(main, argv, said, tmp_path, capsys):
    assert main(argv.format(run=tmp_path).split()) == 2
    assert said.format(run=tmp_path) in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
