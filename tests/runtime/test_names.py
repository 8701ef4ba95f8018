"""Model.labels and Model.columns: the names of the classes and of the inputs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tsm
from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.data.labels import dump_labels, load_labels
from tsm.runtime import Model, TsmError
from tsm.runtime._names import columns, labels


def test_labels(tmp_path, load):
    """The names that the data had, whatever characters are in them."""
    names, path = ("to go\n", "a\\s", "\N{EM SPACE}\x07"), tmp_path / "m.tsm"
    tagger = build_model("lstm_tagger", input_size=1, num_classes=3)
    package(tagger, path, assets={"labels.txt": dump_labels(names)})
    assert Model.load(path).labels == names == tuple(tsm.load(path).labels)
    assert load("tagger").labels is None


def test_columns(tmp_path, load):
    names, path = ("v 1", "w"), tmp_path / "m.tsm"
    classifier = build_model("lstm_classifier", input_size=2, num_classes=3)
    package(classifier, path, assets={"columns.txt": dump_labels(names)})
    assert Model.load(path).columns == names == tuple(tsm.load(path).columns)
    assert Model.load(path).labels is None and load("tagger").columns is None
    model = SimpleNamespace(asset=lambda name: b"a\nb\n", input_size=3, path="m.tsm")
    with pytest.raises(TsmError, match=r"^m.tsm: text.columns is .*; accepted: 3 different names"):
        columns(model)


DAMAGED = [
    *(
        b"a\n\xff\n",
        b"a\n",
        b"a\nb\nc\n",
        b"a\nb\nc",
        b"a\nb",
    ),  # not UTF-8, a wrong number of lines
    *(b"a\na\n", b"\n\n"),  # names that are not different
    *(b"a\n\\u\n", b"a\\q\nb\n", b"a\\\nb\n", b"a\n\\U{61}\n"),  # escapes that are none
    *(b"a\n\\u{ffffff}\n", b"a\n\\u{d800}\n"),  # of no character
]


@pytest.mark.parametrize("raw", DAMAGED)
def test_damaged_labels(raw):
    """The plugin refuses the same ones."""
    with pytest.raises(ValueError, match=r"text\.labels"):
        load_labels(raw, "text.labels", 2)
    model = SimpleNamespace(asset=lambda name: raw, output_size=2, path="m.tsm")
    with pytest.raises(
        TsmError, match=r"^m.tsm: text.labels is .*; accepted: 2 different names"
    ) as refused:
        labels(model)
    assert refused.value.kind == "bad file"


def test_a_closed_model_has_no_labels(files):
    model = Model.load(files["tagger"])
    model.close()
    with pytest.raises(TsmError, match="closed"):
        _ = model.labels
