"""Names are registered once and found again, and the error for a wrong name suggests similar ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tsm.plugin import tasks
from tsm.plugin.cells import Cell, Vector, register_cell
from tsm.plugin.cells.base import MOST_NAMES
from tsm.plugin.registry import Registry


def test_register_and_get():
    registry = Registry("fruit")
    assert registry.register("apple")("A") == "A"
    assert registry.get("apple") == "A" and registry.names() == ["apple"] and "apple" in registry


def test_a_second_registration_is_an_error():
    registry = Registry("fruit")
    registry.register("apple")("A")
    with pytest.raises(ValueError, match="fruit 'apple' is already registered"):
        registry.register("apple")("B")
    assert registry.get("apple") == "A"


def test_a_promised_name_is_imported_when_it_is_asked_for(tmp_path, monkeypatch):
    registry = Registry("fruit")
    (tmp_path / "tsm_promised.py").write_text("REGISTRY.register('fig')('F')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.REGISTRY", registry, raising=False)
    registry.promise("fig", "tsm_promised")
    assert registry.names() == ["fig"] and "fig" in registry and not registry._entries
    with pytest.raises(ValueError, match="fruit 'fig' is already registered"):
        registry.register("fig")("another")
    assert registry.get("fig") == "F"


def test_unknown_names_close_matches_or_all():
    registry = Registry("fruit")
    for name in ("apple", "pear", "cherry"):
        registry.register(name)(name)
    with pytest.raises(ValueError, match="unknown fruit 'aple'; did you mean apple"):
        registry.get("aple")
    with pytest.raises(ValueError, match="known: apple, cherry, pear"):
        registry.get("zzz")


def one_step(ops, z, s, v, const, dt):
    return dict(h=ops.tanh(z.g))


@pytest.mark.parametrize(
    "members, message",
    [
        (dict(states=("h",)), "gates and states must be declared"),
        (dict(gates=("g",), states=("c", "h")), r"states\[0\] = 'h'"),
        (dict(gates=("g",), states=("h", "c")), "the declared states are"),
        (dict(gates=("g",), states=("h",), constants={"p": 1.0}, vectors={"p": Vector()}), "both"),
        (
            dict(gates=("g",), states=("h", *(f"s{i}" for i in range(MOST_NAMES)))),
            "33 states; accepted: at most 32",
        ),
        (dict(gates=tuple(f"g{i}" for i in range(40)), states=("h",)), "40 gates; accepted"),
        (
            dict(gates=("g",), states=("h",), reads={"f": "x"}),
            "reads has 'f': 'x'; accepted: gates",
        ),
        (
            dict(gates=("g",), states=("h",), reads={"g": "y"}),
            "reads has 'g': 'y'; accepted: gates",
        ),
        (
            dict(gates=("g",), states=("h",), reads={"g": "h"}),
            "accepted: some gate reads x",
        ),
        (
            dict(
                gates=("g",),
                states=("h",),
                step=staticmethod(lambda ops, *a: dict(h=ops.sin(a[0].g))),
            ),
            "sin",
        ),
        (
            dict(
                gates=("g",), states=("h",), step=staticmethod(lambda ops, z, *a: dict(h=z.g**0.5))
            ),
            "power",
        ),
    ],
)
def test_a_cell_is_checked_when_it_registers(members, message):
    cls = type("Broken", (Cell,), {"step": staticmethod(one_step), **members})
    with pytest.raises((ValueError, AttributeError), match=message):
        register_cell("broken")(cls)
    from tsm.plugin.cells import list_cells

    assert "broken" not in list_cells()


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"link": "tanh"}, "link = 'tanh'; accepted: sigmoid, exp, identity"),
        ({"spread": "wide"}, "spread = 'wide'; accepted: even, log"),
        ({"spread": "log", "start": (0.0, 1.0)}, "accepted: from above 0"),
    ],
)
def test_a_vector_is_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        Vector(**fields)


def test_the_limit_of_names_is_that_of_the_compiled_core():
    level = Path(__file__).parents[2] / "cpp/src/cells/generated/primitives.h"
    assert f"constexpr int kMostNames = {MOST_NAMES};" in level.read_text()


@pytest.mark.parametrize("name", ["my-cell", "9x", "", "double"])
def test_a_name_must_be_one_in_cpp_too(name):
    cls = type("Named", (Cell,), dict(gates=("g",), states=("h",), step=staticmethod(one_step)))
    with pytest.raises(ValueError, match=r"cell name .*; accepted: an identifier"):
        register_cell(name)(cls)


def test_a_program_cannot_branch():
    def truth(ops, z, s, v, const, dt):
        return dict(h=z.g if z.g else -z.g)

    def comparison(ops, z, s, v, const, dt):
        return dict(h=z.g if z.g > 0 else -z.g)

    for step in (truth, comparison):
        cls = type("Branching", (Cell,), dict(gates=("g",), states=("h",), step=staticmethod(step)))
        with pytest.raises(TypeError, match="cannot branch"):
            register_cell("branching")(cls)


def test_every_task_of_a_module_is_promised():
    folder = Path(tasks.__file__).parent
    found = {
        name: path.stem
        for path in folder.glob("*.py")
        for name in re.findall(r'^@register_task\("(\w+)"\)', path.read_text(), re.MULTILINE)
    }
    assert found == tasks.MODULES
    assert all(tasks.TASKS.get(name).name == name for name in found)
