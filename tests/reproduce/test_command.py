"""The command: what it lists, refuses and prints."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from tsm.plugin.cli.reproduce import main
from tsm.plugin.reproduce.recipes.catalogue import ORDER, experiments
from tsm.plugin.reproduce.store import Store
from tsm.plugin.train.loop import Trainer


def test_list_names_all(command):
    code, printed = command("list")
    assert code == 0 and all(name in printed for name in ORDER)


def test_list_counts_what_the_page_counts(command, tmp_path):
    """The list counts runs with nothing left to do; seeds beyond those of the recipe do not change the
    number."""
    (experiment,) = experiments("toy")
    assert command("toy", "--smoke", "--variants", "fast")[0] == 0
    store = Store(tmp_path / "results")
    (summary,) = store.all_of(experiment.variant("fast"))

    def listed():
        line = next(row for row in command("list")[1].splitlines() if row.startswith("toy "))
        return line.partition(experiment.title)[0].split()[1:]

    assert listed() == ["1", "of", "4"]
    cut = replace(summary, stopped="--max-epoch 4 is reached", of_updates=10**6)
    assert cut.complete and not cut.ended
    store.write(experiment.variant("fast"), cut)
    assert listed() == ["0", "of", "4"]
    for seed in range(1, 6):
        store.write(experiment.variant("fast"), replace(summary, seed=seed))
    assert listed() == ["5"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["coppy"], "did you mean copy"),
        (["copy", "--variants", "nothing"], "matches none"),
        (["copy", "--budget", "-1"], "minutes above 0"),
        (["copy", "--dry-run"], "with next"),
        (["next"], "next needs --budget"),
        (["next", "--budget", "0.2"], "more than 0.5"),
        (["next", "--budget", "5", "--epochs", "2"], "--epochs with next"),
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
    assert code == 0 and "already complete" in printed and "[1/1" not in printed


def test_a_computation_says_how_long_it_was(command, tmp_path):
    assert command("toy", "--smoke", "--variants", "fast")[0] == 0
    (experiment,) = experiments("toy")
    (summary,) = Store(tmp_path / "results").all_of(experiment.variant("fast"))
    assert (summary.updates, summary.of_updates) == (300, 100_000)


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
    assert code == 130 and "interrupted; run the same command again" in printed
    assert command(*words)[0] == 0


def test_no_page_is_made_of_a_folder_that_is_not_there(command, tmp_path):
    code, printed = command("page", "--docs", str(tmp_path / "docs"), "--no-figures")
    assert code == 2 and printed.count("\n") == 1
    assert f"--results {tmp_path / 'results'}: no such folder" in printed
    assert not (tmp_path / "docs").exists()


def test_the_page_is_written(command, tmp_path):
    (tmp_path / "results").mkdir()
    code, _ = command("page", "--docs", str(tmp_path / "docs"), "--no-figures")
    assert code == 0 and (tmp_path / "docs" / "results.md").read_text().startswith("# Results")
