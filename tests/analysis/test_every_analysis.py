"""Every analysis on every architecture: it gives numbers, text and a table, or says why it does not apply."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest

from small_models import structures
from tsm.plugin.analysis.catalogue import all_analyses, get_analysis
from tsm.plugin.analysis.findings.base import DoesNotApply
from tsm.plugin.analysis.findings.results import run, write
from tsm.plugin.analysis.probes.timescale import gate_timescales
from tsm.plugin.common import style

FAMILIES = ("lm", "classifier", "tagger")
ANALYSES = {analysis.name: analysis for analysis in all_analyses()}
OF_MODELS = [name for name, analysis in ANALYSES.items() if analysis.needs or not analysis.bare]
QUICK = {"samples": 50, "orders": 2, "places": 4, "after": 12, "before": 3, "toy_updates": 500}


def quick(analysis):
    """The settings of an analysis, with sizes reduced."""
    known = {field.name for field in dataclasses.fields(analysis.settings)}
    return analysis.settings(**{name: value for name, value in QUICK.items() if name in known})


def check(result) -> None:
    values = json.loads(result.json(), parse_constant=pytest.fail)
    assert values["analysis"] == result.analysis.name
    assert [m["label"] for m in values["models"]] == [s.label for s in result.subjects]
    rows = list(csv.reader(io.StringIO(result.csv().decode())))
    assert len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows)
    text = result.text()
    assert text.endswith(".") and "nan" not in text.lower(), text


def test_every_analysis_stands_in_the_file_of_its_name():
    for name, analysis in ANALYSES.items():
        assert analysis.function.__module__ == f"tsm.plugin.analysis.{name.replace('-', '_')}"


@pytest.mark.parametrize("arch", [a for family in FAMILIES for a in structures(family)])
@pytest.mark.parametrize("name", OF_MODELS)
def test_every_architecture(name, arch, subject_of):
    analysis, subject = ANALYSES[name], subject_of(arch)
    lacks = [need.words for need in analysis.needs if need.lacks(subject)]
    try:
        result = run(analysis, [subject], quick(analysis))
    except DoesNotApply as error:
        assert lacks
        assert str(error).startswith(f"{name} does not apply to {subject.cell.name} because ")
    else:
        assert not lacks
        check(result)


def axis_labels(figure) -> list[str]:
    return [label for axis in figure.axes for label in (axis.get_xlabel(), axis.get_ylabel())]


@pytest.mark.parametrize("name", OF_MODELS)
def test_timescales_are_in_the_unit_of_dt(name, subject_of):
    """If the model reads time steps; else in steps."""
    for arch, unit in (("plstm_classifier", "units of dt"), ("lstm_classifier", "steps")):
        analysis, subject = ANALYSES[name], subject_of(arch)
        found = None if analysis.lacks(subject) else analysis.run(subject, quick(analysis))
        if not hasattr(found, "unit"):
            continue
        assert found.unit == unit
        labels = [label for label in axis_labels(found.draw()) if "timescale" in label]
        assert any(label.endswith(f", {unit}") for label in labels), labels


def test_measured_timescales_are_times(subject_of):
    subject = subject_of("plstm_classifier")
    steps = gate_timescales(subject.factors[0], subject.valid)
    dt = subject.sample.dt.double().numpy()[subject.valid].mean()
    found = ANALYSES["timescales"].run(subject)
    assert found.layers[0].gates == pytest.approx(steps * dt)
    assert found.unit == "units of dt" and not 0.9 < dt < 1.1


@pytest.mark.parametrize("name", ANALYSES)
def test_every_picture(name, subject_of, tmp_path):
    """Each analysis draws a PNG and an SVG for a model to which it applies; the same numbers give the same
    bytes."""
    analysis = ANALYSES[name]
    tries = [("plstm_lm", ""), ("plstm_tagger", ""), ("mts_lstm_lm", ""), ("lstm_tagger", "dyck2")]
    subject = next(s for s in (subject_of(*t) for t in tries) if not analysis.lacks(s))
    result = run(analysis, [subject], quick(analysis))
    check(result)
    files = {path.suffix: path.read_bytes() for path in write(result, tmp_path)}
    assert files[".png"].startswith(b"\x89PNG") and b"<svg" in files[".svg"]
    figure = result.draw()
    assert files[".svg"] == style.rendered(figure, "svg")
    assert all(axis.get_ylabel() or axis.get_xlabel() for axis in figure.axes)


@pytest.mark.parametrize("name", [n for n, a in ANALYSES.items() if a.several])
def test_several_models(name, subject_of):
    """Two models in one figure, each with its label."""
    analysis = ANALYSES[name]
    task = "dyck2" if name == "dyck2-timescales" else ""
    family = "lm" if name == "frequency-bins" else "tagger"
    subjects = [subject_of(f"{kind}_{family}", task) for kind in ("lstm", "fast_lstm")]
    result = run(analysis, subjects, quick(analysis))
    check(result)
    assert {row["model"] for row in result.table()} == {subject.label for subject in subjects}
    words = {
        text.get_text()
        for axis in result.draw().axes
        if (legend := axis.get_legend())
        for text in legend.get_texts()
    }
    shared = name == "alpha-sweep"  # its figure has a line per alpha, not per model
    assert shared or all(any(s.label in word for word in words) for s in subjects), words


def test_unknown_name():
    with pytest.raises(ValueError, match="did you mean timescales"):
        get_analysis("timescale")
