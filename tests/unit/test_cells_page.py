"""docs/cells.md agrees with the registry, and shows a picture for every cell."""

from __future__ import annotations

import math
import re
import struct

import pytest

from docs_builder import DOCS, load_builder
from tsm.plugin.cells import get_cell, list_cells
from tsm.plugin.init import list_initialisers
from tsm.plugin.layers import Recurrent

OWN = [name for name in list_cells() if get_cell(name).__module__.startswith("tsm.plugin")]


@pytest.fixture(scope="module")
def builder():
    return load_builder("build_cells")


def test_page_is_up_to_date(builder, capsys):
    assert builder.main(["--check"]) == 0, capsys.readouterr().err


def test_a_stale_page_is_noticed(builder, tmp_path, monkeypatch, capsys):
    old = tmp_path / "cells.md"
    old.write_text(builder.PAGE.read_text().replace("power", "cower", 1))
    monkeypatch.setattr(builder, "PAGE", old)
    assert builder.main(["--check"]) == 1
    assert "python docs/build_cells.py" in capsys.readouterr().err
    assert builder.main(["--text"]) == 0
    assert builder.main(["--check"]) == 0


@pytest.mark.parametrize("name", OWN)
def test_every_cell_has_its_picture(name):
    text, picture = (DOCS / "cells.md").read_text(), DOCS / "img" / f"forgetting_{name}.png"
    assert f"(img/{picture.name})" in text
    head = picture.read_bytes()[:24]
    width, height = struct.unpack(">II", head[16:24])
    assert head[:8] == b"\x89PNG\r\n\x1a\n" and width > 400 and height > 200
    assert picture.stat().st_size < 60_000


@pytest.mark.parametrize("name", OWN)
def test_every_cell_has_a_title_and_a_formula(builder, name):
    cell = get_cell(name)
    summary, formula = builder.docstring(cell)
    assert builder._title(cell) and summary and "=" in formula


def test_no_picture_and_no_link_is_left_over():
    text = (DOCS / "cells.md").read_text()
    shown = set(re.findall(r"\(img/([\w.]+)\)", text))
    assert shown == {path.name for path in (DOCS / "img").glob("forgetting_*.png")} | {"gates.png"}
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\(#([\w-]+)\)", text)) <= anchors


def test_count_of_the_composite_cell():
    """The formula on the page, written again in Python."""
    I, H, M, k = 7, 20, 9, 4
    found = sum(p.numel() for p in Recurrent("nru", I, H, memory_size=M, heads=k).parameters())
    assert found == H * (I + H + M + 1) + (2 * k + 4 * math.isqrt(k * M)) * (H + M + 1)


def test_which_initialisers_fit(builder):
    fitting = {name for name in list_initialisers() if builder.fits(get_cell("lstm"), name)}
    assert fitting == set(list_initialisers())
    assert not builder.fits(get_cell("nru"), "chrono")
