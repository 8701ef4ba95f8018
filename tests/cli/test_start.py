"""Commands print --help and lists without importing torch or numpy, which would take most of the time."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import distribution

import pytest

from tsm.plugin.command.spinning import ROUNDS

COMMANDS = [
    point
    for point in distribution("timescale-models").entry_points
    if point.group == "console_scripts"
]
EVERYWHERE = ("--help", "--version", "--no-such-flag")
OF_TRAINING = (
    "--list",
    "--arch plsm_lm",
    "--arch plstm_lm --larning-rate 1",
    "--arch plstm_lm --momentum 1",
    "--recipe no-such",
)
OF_OTHERS = {
    "analyze": ("list", "no-such", "list --no-such-flag"),
    "reproduce": ("list", "list --variants 'plstm*'", "no-such", "list --variants no-such"),
    "preprocess": ("--dataset no-such",),
    "doctor": ("no-such",),
}

ASK = """
import contextlib, importlib, io, json, sys
answers = []
for module, argv in json.loads(sys.argv[1]):
    main = importlib.import_module(module).main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            code = main(argv)
        except SystemExit as leaving:
            code = leaving.code
    answers.append([module, argv, code, sorted({"torch", "numpy"} & set(sys.modules))])
print(json.dumps(answers))
"""


def ask(questions: list[tuple[str, list[str]]]) -> list[tuple[str, list[str], int, list[str]]]:
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(questions)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_questions_to_any_command_import_neither_torch_nor_numpy():
    answers = ask([(point.module, [word]) for point in COMMANDS for word in EVERYWHERE])
    assert len(answers) == len(COMMANDS) * len(EVERYWHERE) >= 30
    for module, argv, code, loaded in answers:
        assert not loaded, (module, argv)
        assert (code or 0) == (2 if argv == ["--no-such-flag"] else 0), (module, argv)


def test_lists_typos_and_every_task_of_training_import_neither():
    from tsm.plugin.tasks import TASKS

    words = [*OF_TRAINING, *(f"--help --task {name}" for name in TASKS)]
    for _, argv, code, loaded in ask([("tsm.plugin.cli.train", w.split()) for w in words]):
        assert not loaded, argv
        assert (code or 0) == (0 if argv[0] in ("--list", "--help") else 2), argv


def test_lists_and_typos_of_other_commands_import_neither():
    questions = [
        (f"tsm.plugin.cli.{name}", shlex.split(words))
        for name, asked in OF_OTHERS.items()
        for words in asked
    ]
    for module, argv, code, loaded in ask([*questions, ("tsm.export.cli", ["no-such"])]):
        assert not loaded, (module, argv)
        assert (code or 0) == (2 if "no-such" in " ".join(argv) else 0), (module, argv)


def test_the_list_of_analyses_is_that_of_the_registry():
    """The list is read from the source files, without importing them."""
    from tsm.plugin.analysis.catalogue import about_all, all_analyses
    from tsm.plugin.analysis.findings.base import About

    names = [field.name for field in dataclasses.fields(About)]
    registered = [[getattr(one, name) for name in names] for one in all_analyses()]
    assert [[getattr(one, name) for name in names] for one in about_all()] == registered
    assert len(registered) >= 19


SPIN = """
import os, sys
from tsm.plugin.command.command import command
sys.argv = ["tsm-any"]
if "IMPORT" in os.environ:
    import torch
main = command(os.environ.get("NAME", "tsm-any"))(lambda argv: print(os.environ.get("GOMP_SPINCOUNT")) or 0)
main([] if "INSIDE" in os.environ else None)
"""


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, str(ROUNDS)),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, "None"),
        ({"IMPORT": "torch"}, "None"),  # too late
        ({"INSIDE": "a program"}, "None"),
        ({"NAME": "tsm-bench"}, "None"),
    ],
    ids=str,
)
def test_threads_do_not_wait_actively_for_long(given, expected):
    env = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    done = subprocess.run(
        [sys.executable, "-c", SPIN], env=env | given, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
