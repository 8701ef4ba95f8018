"""Every console script prints its name and the version of the package."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

import tsm

COMMANDS = {
    point.name: point
    for point in entry_points(group="console_scripts")
    if point.value.startswith("tsm.")
}


def test_commands_are_installed():
    assert {"tsm-train", "tsm-preprocess", "tsm-eval"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_version(name, capsys):
    with pytest.raises(SystemExit) as stop:
        COMMANDS[name].load()(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"{name} (tsm {tsm.__version__})\n"
