"""Huge integers and loops of links on the command line of every command: one sentence, never a traceback."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from small_models import small
from tsm.export.tsm.package import package
from tsm.plugin.cli.train import main as train
from tsm.plugin.command import command

tomllib = pytest.importorskip("tomllib", reason="of Python 3.11")
ROOT = Path(__file__).parents[2]
HUGE = ("9" * 25, "99999999999999")
TINY = "--cpu --max-update 1 --max-epoch 1 --log-format none --decoder-hidden-size 4"
COPY = "--task copy --copy-length 3 --copy-train 8 --copy-valid 4"
GOOD = {  # a good command line of every command, to which one bad value is added
    "tsm-train": f"--arch plstm_tagger {COPY} {TINY} --no-save",
    "tsm-preprocess": "--trainpref text.txt --destdir data --overwrite",
    "tsm-eval": "--path run/checkpoint_last.pt --cpu",
    "tsm-average": "run/checkpoint_last.pt run/checkpoint_best.pt --output mean.pt",
    "tsm-generate": "--path lm/checkpoint_last.pt --cpu --length 2",
    "tsm-analyze": "timescales run/checkpoint_last.pt --cpu --steps 20 --rows 4",
    "tsm-reproduce": "list",
    "tsm-doctor": "",
    "tsm-export": "tsm --path run/checkpoint_last.pt --output out.tsm --verify-steps 5",
    "tsm-stream": "model.tsm",
    "tsm-predict": "model.tsm sums.csv",
    "tsm-serve": "model.tsm --new-token me",
    "tsm-cell": "check --help",  # its only flag takes no value
    "tsm-bench": "--help",  # its values are those of measurements, which take minutes
}
"""Values that are valid, only large: the command would compute for ever."""
ENDLESS = {"--seeds", "--verify-steps", "--length"}


def commands() -> dict[str, Callable[[list[str]], int]]:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    split = {name: target.split(":") for name, target in scripts.items()}
    return {n: getattr(importlib.import_module(m), main) for n, (m, main) in split.items()}


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    words = f"--arch plstm_tagger {COPY} {TINY} --save-dir {folder / 'run'}"
    assert train(words.split()) == 0
    words = f"--arch lstm_lm --decoder-embed-dim 4 --generated-tokens 1000 {TINY}"
    assert train([*words.split(), "--save-dir", str(folder / "lm")]) == 0
    package(small("lstm_tagger", input_size=2), folder / "model.tsm")
    (folder / "text.txt").write_text("a b c\n")
    (folder / "sums.csv").write_text("a,b\n1,2\n")
    (folder / "loop").symlink_to("loop")
    return folder


@pytest.fixture(params=commands())
def run(request, here, monkeypatch, capsys):
    """run(words) -> exit code; `run.flags`: the actions of the command's parser."""
    monkeypatch.chdir(here)
    main = commands()[request.param]
    parsers: list[argparse.ArgumentParser] = []
    original = argparse.ArgumentParser.parse_known_args

    def parse(parser, *rest, **named):
        parsers.append(parser)
        return original(parser, *rest, **named)

    def call(words: list[str]) -> int:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1 2\n")))
        try:
            code = main([*GOOD[request.param].split(), *words])
        except SystemExit as ended:  # --help and --version
            code = ended.code
        said = capsys.readouterr().err
        assert "Traceback" not in said and "cannot fit" not in said and "too large to" not in said
        return code

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_known_args", parse)
        assert call([]) == 0
    call.flags = [action for parser in parsers for action in parser._actions]
    return call


def reads(action: argparse.Action, text: str) -> bool:
    """Whether the flag takes an integer."""
    if not action.option_strings or action.nargs == 0 or action.type in (None, str, float, Path):
        return False
    try:
        return type(action.type(text)) in (int, tuple)
    except (ValueError, argparse.ArgumentTypeError):
        return False


def test_every_command_is_tested():
    assert {*GOOD} == {*commands()}


def test_huge_integers(run):
    names = {a.option_strings[0] for a in run.flags if reads(a, "3")} - ENDLESS
    for name in sorted(names):
        for huge in HUGE:
            assert run([name, huge]) in (0, 1, 2), (name, huge)


def test_paths_in_a_loop_of_links(run):
    for action in run.flags:
        if action.option_strings and action.nargs != 0 and action.type in (None, str, Path):
            assert run([action.option_strings[0], "loop/x"]) in (0, 1, 2), action.option_strings


def test_sizes_of_models_are_checked(here, capsys, monkeypatch):
    monkeypatch.chdir(here)
    for flag in ("--decoder-hidden-size", "--decoder-layers", "--decoder-embed-dim"):
        assert train([*GOOD["tsm-train"].split(), flag, "99999999999"]) == 2
        said = capsys.readouterr().err
        assert f"{flag} = 99999999999; accepted: an integer from " in said


def test_memory_that_is_not_there_is_one_sentence(capsys):
    for error in (MemoryError("Unable to allocate 5.68 PiB"), RuntimeError("CUDA out of memory")):

        @command.command("tsm-some")
        def main(argv, error=error):
            raise error

        assert main([]) == 1
        assert capsys.readouterr().err == f"tsm-some: error: not enough memory: {error}\n"

    @command.command("tsm-some")
    def broken(argv):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        broken([])
