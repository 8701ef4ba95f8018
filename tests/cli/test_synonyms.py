"""A flag from another tool gets an error message that names tsm's flag."""

from __future__ import annotations

import pytest

from tsm.plugin.cli import eval as eval_command
from tsm.plugin.cli.train import first_parser, full_parser, main, names_in
from tsm.plugin.command.synonyms import SYNONYMS, unknown_flag
from tsm.plugin.tasks import TASKS
from tsm.plugin.train.plan import setting_classes


def train_flags() -> set[str]:
    found = set(names_in(first_parser()))
    for arch, task in (("plstm_lm", "language_modeling"), ("plstm_classifier", "classification")):
        assert task in TASKS
        settings = setting_classes(arch, task, "adam", "fixed")
        found |= {*names_in(full_parser(arch, settings))}
    return found


def test_every_meaning_is_a_flag_and_no_synonym_is_one():
    known = train_flags()
    others = {name for a in eval_command.build_parser()._actions for name in a.option_strings}
    others |= {"--output"}  # of tsm-export
    for synonym, meant in SYNONYMS.items():
        assert meant.partition(" ")[0] in known | others, synonym
        assert synonym not in known, synonym


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--learning-rate", "--lr"), ("--epochs=3", "--max-epoch"), ("--gpu", "--device cuda")],
)
def test_the_nearest_flag_is_that_of_the_same_meaning(capsys, flag, meant):
    assert main(["--arch", "plstm_lm", flag]) == 2
    assert (
        f"unknown flag '{flag.partition('=')[0]}'; did you mean {meant}?" in capsys.readouterr().err
    )
    assert eval_command.main(["--path", "x", "--ckpt", "y"]) == 2
    assert "did you mean --path?" in capsys.readouterr().err


def test_a_meaning_that_the_command_lacks_is_not_offered():
    message = unknown_flag("--learning-rate", ["--seed", "--json"], "tsm-eval")
    assert message == "unknown flag '--learning-rate'; tsm-eval --help lists all"


def test_an_unknown_flag_is_short_and_says_where_all_are(capsys):
    assert main(["--arch", "plstm_lm", "--zzqx", "1"]) == 2
    assert capsys.readouterr().err == (
        "tsm-train: error: unknown flag '--zzqx'; tsm-train --help lists all\n"
    )
