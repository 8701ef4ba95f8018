"""Every leaf of a real checkpoint is replaced by a value that no training writes: it is refused in one sentence
that names the field, or has no effect. There is never a traceback, and weights stay finite."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from tsm.plugin.evaluation.eval_text import task_config
from tsm.plugin.train.checkpoint import read_checkpoint, to_bytes
from tsm.plugin.trained import open_trained

from .conftest import TINY

RECIPES = {
    "plateau": "--lr-scheduler reduce_lr_on_plateau",
    "averaging": "--optimizer nt_asgd --lr 1 --asgd-start 2 --random-bptt",
}


def deep():
    value = []
    for _ in range(40):
        value = [value]
    return value


PLAIN = {
    "none": None,
    "true": True,
    "negative": -1,
    "huge": 2**70,
    "large": 2**50,
    "fraction": 0.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "text": "\0x",
    "list": [],
    "table": {},
    "deep": deep(),
}


def tensors(like):
    """Hostile values, with the shape of `like` if it has one."""
    shape = like.shape if isinstance(like, torch.Tensor) else (3,)
    return {
        "complex": torch.zeros(shape, dtype=torch.complex64),
        "bool": torch.zeros(shape, dtype=torch.bool),
        "int8": torch.zeros(shape, dtype=torch.int8),
        "int64": torch.zeros(shape, dtype=torch.int64),
        "nan tensor": torch.full(shape, float("nan")),
        "infinite tensor": torch.full(shape, float("inf")),
        "negative tensor": torch.full(shape, -1.0),
        "other shape": torch.zeros(5, 4, 3),
        "empty": torch.zeros(0),
        "a number": torch.tensor(2.0),
        "expanded": torch.zeros(1).expand(10**12),
        "sparse": torch.zeros(5, 5).to_sparse(),
    }


def leaves(value, where=()):
    """Yields (path, leaf); of a long list, only the first and the last entry."""
    if isinstance(value, dict) and value:
        for key, part in value.items():
            yield from leaves(part, (*where, key))
    elif isinstance(value, (list, tuple)) and value:
        chosen = range(len(value)) if len(value) < 20 else (0, len(value) - 1)
        for i in chosen:
            yield from leaves(value[i], (*where, i))
    else:
        yield where, value


def replaced(checkpoint, where, value):
    """A copy with another value there."""
    if not where:
        return value
    key, rest = where[0], where[1:]
    if isinstance(checkpoint, dict):
        return {**checkpoint, key: replaced(checkpoint[key], rest, value)}
    parts = list(checkpoint)
    parts[key] = replaced(parts[key], rest, value)
    return type(checkpoint)(parts)


@pytest.fixture(scope="module", params=RECIPES)
def saved(request, tmp_path_factory):
    """(flags, a checkpoint from the middle of an epoch)"""
    from tsm.plugin.cli.train import main

    folder = tmp_path_factory.mktemp(request.param)
    flags = [*TINY.split(), *RECIPES[request.param].split()]
    assert main([*flags, "--save-dir", str(folder), "--max-update", "14"]) == 0
    checkpoint = read_checkpoint(folder / "checkpoint_last.pt")
    assert checkpoint["train_state"]["index"] and checkpoint["train_state"]["carried"]
    return flags, checkpoint


def attack(saved, cases, path, capsys):
    """Tries all cases (where, name, value); returns the failures."""
    from tsm.plugin.cli.train import main

    flags, checkpoint = saved
    command = [*flags, "--no-save", "--restore-file", str(path), "--max-update", "15"]
    wrong = []
    for where, name, value in cases:
        path.write_bytes(to_bytes(replaced(checkpoint, where, value)))
        case = f"{'.'.join(map(str, where))} = {name}"
        try:
            code = main(command)
            said = capsys.readouterr().err
            if not (code == 0 and said == "") and not (code == 2 and names(said, where)):
                wrong.append(f"{case}: exit code {code}, {said!r}")
            look(path, where)
        except Exception as error:  # a traceback, for a user
            wrong.append(f"{case}: {type(error).__name__}: {error}")
    return wrong


def names(said, where):
    """Whether the message is one sentence that names the field or its parent."""
    known = [str(key) for key in where if isinstance(key, str)]
    plain = said.replace("-", "_")
    return said.count("\n") == 1 and any(key in plain for key in known[-2:])


def look(path, where):
    """What tsm-eval, tsm-generate and tsm-export first do with a checkpoint."""
    try:
        trained = open_trained(path)
        _ = trained.vocab, trained.tokenizer, task_config(trained)
    except ValueError as error:
        assert names(f"{error}\n", where), error
        return
    logits, _ = trained.model(torch.zeros(1, 3, dtype=torch.int64))
    assert torch.isfinite(logits).all()


def all_cases(checkpoint):
    found = []
    for where, leaf in leaves({k: v for k, v in checkpoint.items() if k != "format"}):
        for name, value in {**PLAIN, **tensors(leaf)}.items():
            found.append((where, name, value))
    return found


def test_every_leaf_once(saved, tmp_path, capsys):
    """Each leaf is tried with one of the values; the second recipe covers only leaves that the first lacks."""
    chance = random.Random(7)
    by_leaf: dict = {}
    for case in all_cases(saved[1]):
        if "nt_asgd" not in saved[0] or case[0][0] in ("optimizer", "train_state"):
            by_leaf.setdefault(case[0], []).append(case)
    cases = [chance.choice(all_of) for all_of in by_leaf.values()]
    assert len(cases) > 40
    assert "\n".join(attack(saved, cases, tmp_path / "x.pt", capsys)) == ""


@pytest.mark.nightly
def test_every_leaf_with_every_value(saved, tmp_path, capsys):
    cases = all_cases(saved[1])
    assert len(cases) > 1218
    assert "\n".join(attack(saved, cases, tmp_path / "x.pt", capsys)) == ""


def test_the_good_one_is_good(saved, tmp_path, capsys):
    whole = copy.deepcopy(saved[1])
    assert (
        attack(saved, [(("version",), "as it was", whole["version"])], tmp_path / "x.pt", capsys)
        == []
    )
