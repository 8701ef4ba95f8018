"""The command: its output and exit code for good and bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tsm.plugin.cli.train import main
from tsm.plugin.command.flags import as_flags
from tsm.plugin.train import run

from .conftest import TINY
from .processes import COMMAND, environment


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--arch plstm_ml", "unknown architecture 'plstm_ml'; did you mean plstm_lm"),
        (
            "--arch lstm_decay_tagger",
            "unknown architecture 'lstm_decay_tagger'; with that cell: decay_lstm_tagger\n",
        ),
        ("--arch plstm", "with that cell: plstm_classifier, plstm_lm, plstm_tagger\n"),
        ("--task copy", "--arch is missing; e.g. --arch plstm_tagger (tsm-train --list shows"),
        ("--arch plstm_lm --task langage_modeling", "did you mean language_modeling"),
        ("--arch plstm_lm --optimizer adm", "unknown optimizer 'adm'; did you mean adam"),
        ("--arch plstm_lm --lr-scheduler cosin", "did you mean cosine"),
        ("--arch plstm_lm --criterion mze", "did you mean mse"),
        (
            "--arch plstm_lm --batch-sise 3",
            "unknown flag '--batch-sise'; did you mean --batch-size",
        ),
        ("--arch plstm_lm --lr=1 --momentun=3", "unknown flag '--momentun'"),
        ("--arch plstm_lm --copy-length 5", "error: --copy-length belongs to --task copy"),
        ("--arch plstm_lm --no-copy-fresh", "error: --no-copy-fresh belongs to --task copy"),
        ("--arch plstm_lm --momentum=3", "--momentum belongs to --optimizer rmsprop or sgd"),
        ("--arch plstm_lm --lr-shrink .5", "belongs to --lr-scheduler reduce_lr_on_plateau"),
        ("--arch plstm_lm --read-at 3", "--read-at belongs to an --arch that is a classifier"),
        ("--arch plstm_lm --fp16", "--fp16: float16 would need loss scaling; --bf16 is as fast"),
        (
            "--arch plstm_lm --max-tokens 9",
            "--max-tokens: it is for --task classification, series and",
        ),
        ("--arch plstm_lm --lr fast", "argument --lr: invalid float value: 'fast'"),
        ("--arch plstm_lm --lr -1", "error: --lr is -1.0; accepted: 0 or more"),
        ("--arch plstm_lm --clip-norm nan", "--clip-norm is nan"),
        ("--arch plstm_lm --reset-share 1.1", "--reset-share is 1.1; accepted: 0 to 1\n"),
        ("--arch plstm_lm --reset-share -1", "--reset-share is -1.0; accepted: 0 to 1\n"),
        ("--arch plstm_lm --reset-share nan", "--reset-share is nan; accepted: 0 to 1\n"),
        ("--arch plstm_lm --log-format xml", "invalid choice: 'xml'"),
        ("--arch plstm_lm --max-epoch 0", "--max-epoch, --max-update and --patience are all 0"),
        ("--arch plstm_lm --max-update -1", "--max-update is -1; accepted: 0 or more"),
        (
            f"--arch plstm_lm --seed {2**64}",
            f"--seed: '{2**64}'; accepted: an integer of at most 64 bits",
        ),
        ("--arch plstm_lm a b", "accepted: one data folder"),
        ("--arch plstm_lm a --data b", "'a' and --data 'b'; accepted: one data folder"),
        ("--arch plstm_lm --dropout 1", "--dropout = 1.0; accepted"),
        ("--arch plstm_lm --user-dir nowhere", "--user-dir nowhere: no such folder"),
        ("--arch plstm_tagger", "--task is missing; --arch plstm_tagger goes with adding, copy"),
        ("nowhere --arch plstm_tagger", "it is not read from the data, because nowhere does not"),
        ("--arch plstm_tagger --data nowhere", "because nowhere does not exist"),
        ("--arch plstm_tagger pyproject.toml", "because pyproject.toml is not a preprocessed"),
        (
            "--arch plstm_lm --task copy",
            "trains a tagger, --arch plstm_lm is a lm; accepted: --arch plstm_tagger, or with",
        ),
        ("--arch plstm_lm_text8 --task classification", "accepted: --arch plstm_classifier, or"),
        ("--arch plstm_lm --task classification", "--arch plstm_lm --task language_modeling"),
        ("--arch plstm_classifier", "tsm-preprocess --trainpref FILE.csv"),
        ("", "--arch is missing; e.g. --arch plstm_lm"),
        ("--arch plstm_lm --best-checkpoint-metric acc", "accepted with this task: loss, ppl"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, capsys, flags, said):
    argv = [*flags.split(), "--save-dir", str(tmp_path / "c"), "--cpu"]
    if "accepted with this task" in said:
        argv += TINY.split()
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert said in captured.err and captured.err.count("\n") == 1
    assert not list(tmp_path.glob("c/*.pt"))  # refused before anything was trained
    assert captured.err.startswith("tsm-train: error: ")


def test_missing_data_folder_names_the_preprocess_command(tmp_path, capsys):
    for folder, why in ((tmp_path / "no", "does not exist"), (tmp_path, "is not preprocessed")):
        assert main(["--arch", "plstm_lm", str(folder), "--cpu"]) == 2
        error = capsys.readouterr().err
        assert (
            why in error
            and f"tsm-preprocess --dataset ptb-char --from DIR --destdir {folder}" in error
        )


def test_without_data_it_says_what_it_trains_on(runs, capsys):
    assert runs("s", "--max-update 3 --log-format simple") == 0
    out = capsys.readouterr().out
    assert "no data folder was given: training on the built-in generated corpus" in out
    assert "backend layer_cpu" in out
    assert "loss" in out and "tokens/s" in out and "best checkpoint" in out


def test_the_data_folder_may_stand_anywhere(tmp_path, capsys):
    folder = str(tmp_path / "no")
    for argv in ([folder, "--arch", "plstm_lm"], ["--arch", "plstm_lm", folder, "--lr", "1"]):
        assert main([*argv, "--cpu"]) == 2
        assert folder in capsys.readouterr().err


def test_list_and_help(capsys):
    assert main(["--list"]) == 0
    assert "plstm_lm_ptb_char" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main(["--arch", "awd_lstm_lm_ptb", "--optimizer", "nt_asgd", "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for flag in ("--nonmono", "--wdrop", "--emsize", "--bptt", "--alpha", "--decoder-layers"):
        assert flag in out


def test_every_name_has_a_line_about_it(capsys):
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line for line in lines if line.startswith("  ")]
    assert all(len(line.split(maxsplit=1)) == 2 for line in names)
    assert any(line.endswith("lm: cell plstm, 828 units") for line in names)


def test_settings_are_named_as_flags():
    names = ["max_update", "max_update_x", "lr", "batch_size", "data"]
    said = "lr is 1, max_update 2, 'max_update' in /a/max_update/b; batch_size, lr is kept"
    wanted = "--lr is 1, --max-update 2, 'max_update' in /a/max_update/b; --batch-size, lr is kept"
    assert as_flags(said, names) == wanted


def test_bf16_on_a_slow_cpu_is_one_line(runs, capsys, monkeypatch, recwarn):
    monkeypatch.setattr(run, "cpu_has_bf16", lambda: False)
    runs("b", "--max-update 1 --log-format simple --bf16 --decoder-hidden-size 64")
    assert capsys.readouterr().out.count("this CPU has no bfloat16 arithmetic") == 1
    assert not [w for w in recwarn if "mkldnn" in str(w.message)]


FREQUENCY = "--task frequency --decoder-hidden-size 3 --frequency-train 32 --frequency-valid 8"
FREQUENCY += " --cpu --max-update 1 --log-format json"


@pytest.mark.parametrize(
    ("flags", "eps"),
    [
        ("--arch plstm_classifier", 1e-5),
        ("--arch plstm_classifier --eps 1e-4", 1e-4),
        ("--arch plstm_classifier --cell-options eps=1e-4", 1e-4),
        ("--arch fast_plstm_classifier", 1e-5),
        ("--arch lstm_classifier", None),
    ],
)
def test_frequency_chooses_eps(runs, capsys, flags, eps):
    assert runs("f", flags, FREQUENCY) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert next(e for e in events if e["event"] == "start").get("eps") == eps


def test_the_reason_for_the_reference_backend_is_said(runs, capsys):
    runs("r", "--max-update 1 --log-format simple --backend reference")
    assert "backend reference (asked for)" in capsys.readouterr().out
    runs(
        "n", "--max-update 1 --log-format simple --arch nru_lm --cell-options memory_size=4:heads=1"
    )
    assert "reference (cell 'nru' is not element-wise)" in capsys.readouterr().out


BLOCK = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Block())
"""


def blocked(packages, code):
    return subprocess.run(
        [sys.executable, "-c", BLOCK.format(blocked=packages) + code],
        env=environment(),
        capture_output=True,
        text=True,
    )


def test_without_torch_it_says_what_to_install():
    code = "from tsm.plugin.cli.train import main; sys.exit(main(['--arch', 'plstm_lm']))"
    done = blocked(["torch"], code)
    assert done.returncode == 2, done.stderr
    assert "torch is missing: needs pip install 'timescale-models[train]'" in done.stderr
    assert "Traceback" not in done.stderr


QUESTIONS = ("--help", "--list", "--arch plstm_lm --batch-sise 3", "--arch plstm_lm --momentum 3")


def test_questions_and_typos_are_answered_without_torch():
    """Its import takes seconds."""
    code = "import contextlib\nfrom tsm.plugin.cli.train import main\n"
    code += f"for question in {QUESTIONS}:\n"
    code += "    with contextlib.suppress(SystemExit):\n        main(question.split())\n"
    done = blocked(["torch"], code)
    assert done.returncode == 0, done.stderr
    assert "--decoder-hidden-size" in done.stdout and "plstm_lm_ptb_char" in done.stdout
    assert "did you mean --batch-size" in done.stderr
    assert "--momentum belongs to --optimizer rmsprop or sgd" in done.stderr
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize("flag", ["--list", "--help"])
def test_a_reader_that_has_enough_is_no_error(flag):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, *COMMAND, flag],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


USER_CELL = '''
from tsm.plugin import register_cell, register_model_architecture
from tsm.plugin.cells import Cell

import tsm.plugin.archs


@register_cell("leaky_test")
class Leaky(Cell):
    """h = .5 h' + .5 tanh(z_g)"""

    gates = ("g",)
    states = ("h",)

    @staticmethod
    def step(ops, z, s, v, const, dt):
        return dict(h=0.5 * s.h + 0.5 * ops.tanh(z.g))


@register_model_architecture("lm", "leaky_test_lm")
def leaky_test_lm(chosen):
    return {"cell": "leaky_test"}
'''


def test_a_cell_of_the_user_trains(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "leaky.py").write_text(USER_CELL)
    flags = TINY.replace("plstm_lm", "leaky_test_lm").replace("none", "simple")
    flags += f" --user-dir {folder} --max-update 5 --save-dir {tmp_path / 'u'}"
    done = subprocess.run(
        [sys.executable, "-m", "tsm.plugin.cli.train", *flags.split()],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "reference (cell 'leaky_test' is not compiled in)" in done.stdout
