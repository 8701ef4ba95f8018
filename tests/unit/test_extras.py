"""The installation advice for missing packages agrees with pyproject.toml."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tsm.plugin.extras import EXTRAS, extra_of, how_to_install

INDEX = {  # import name -> name on the package index
    "yaml": "pyyaml",
    "prometheus_client": "prometheus-client",
}
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_extras_bring_what_they_are_named_for():
    tomllib = pytest.importorskip("tomllib", reason="of Python 3.11")
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        brought = {re.split("[>;]", requirement)[0] for requirement in declared[extra]}
        assert {INDEX.get(name, name) for name in packages} <= brought, extra


def test_extra_of():
    assert extra_of("onnx.reference") == "export" and extra_of("torch") == "train"
    assert extra_of("numpy") is None and extra_of("onnxx") is None


def test_no_safetensors(monkeypatch, tmp_path):
    from small_models import small
    from tsm.export.tsm.package import package

    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        package(small("lstm_lm"), tmp_path / "m.tsm")
    assert caught.value.name == "safetensors" and how_to_install("export") in str(caught.value)
