"""The command: what it lists, refuses and prints."""

from __future__ import annotations

import os
import signal

import pytest

from tsm.plugin.cli.reproduce import main
from tsm.plugin.reproduce.catalogue import ORDER, experiments
from tsm.plugin.reproduce.store import Store


def test_list_names_all(command):
    code, printed = command("list")
from tsm.plugin.train.loop import Trainer
    assert code == 0 and all(name in printed for name in ORDER)


@pytest.mark.parametrize(
    "words, said",
    [
        (["coppy"], "did you mean copy"),
        (["copy", "--variants", "nothing"], "fits none"),
        (["copy", "--budget", "-1"], "minutes above 0"),
        (["copy", "--cpu", "--device", "cuda"], "one of them"),
        (["copy", "--jbos", "2"], "--jobs"),
        (["copy", "--seeds", "0"], "1 <= A <= B"),
        (["copy", "--seeds", "3-2"], "1 <= A <= B"),
        (["copy", "--seeds", "two"], "1 <= A <= B"),
        (["copy", "--seeds", "1_0"], "1 <= A <= B"),
        (["copy", "--seeds", "2-"], "1 <= A <= B"),
        (["copy", "--smoke", "--results", "results"], "another folder"),
        (["copy", "--smoke", "--results", "docs/../results/"], "another folder"),
    ],
)
def test_bad_input_is_one_sentence(words, said, capsys):
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("tsm-reproduce: error: ") and said in err and err.count("\n") == 1


def test_a_run_is_reported_and_kept(command):
    words = ("copy", "--variants", "plstm-200", "--smoke", "--cpu")
    code, printed = command(*words)
    assert code == 0 and "[1/1" in printed and "copy/plstm-200 seed 1: done" in printed
    assert "accuracy on the last 10" in printed and "1 done" in printed
    code, printed = command(*words)
    assert code == 0 and "complete before" in printed and "[1/1" not in printed


def test_a_computation_says_how_long_it_was(command, tmp_path):
    assert command("toy", "--smoke", "--variants", "fast")[0] == 0
    (experiment,) = experiments("toy")
    (summary,) = Store(tmp_path / "results").all_of(experiment.variant("fast"))
    assert (summary.updates, summary.of_updates) == (300, 100_000)


def test_the_page_is_written(command, tmp_path):
    code, _ = command("page", "--docs", str(tmp_path / "docs"), "--no-figures")
    assert code == 0 and (tmp_path / "docs" / "results.md").read_text().startswith("# Results")
def test_an_interrupted_command_has_an_exit_code_of_its_own(command, monkeypatch):
    original = Trainer.backward

    def backward(trainer, batch):
        if trainer.state.update == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(trainer, batch)

    words = ("copy", "--variants", "plstm-200", "--smoke", "--cpu")
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "backward", backward)
        code, printed = command(*words)
    assert code == 130 and "interrupted: the same command goes on" in printed
    assert command(*words)[0] == 0


