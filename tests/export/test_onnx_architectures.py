"""Every architecture, and every cell in every form, exports to ONNX and agrees with the model in float64."""

from __future__ import annotations

import pytest

from small_models import small, structures
from tsm.export.common.formats import Options, Source
from tsm.export.onnx.model import checked, write
from tsm.export.onnx.runners import OrtRunner, ReferenceRunner
from tsm.export.verify.verify import verify
from tsm.plugin import list_architectures

STEPS = 30
FORMS = {"scan": None, "loop": None, "unrolled": 4}
FAMILIES = ("lm", "classifier")
NAMES = [name for family in FAMILIES for name in structures(family)]


def exported(model, path, form, dtype="float32", chunk_size=None):
    options = checked(model, Options(form, chunk_size or FORMS.get(form), dtype))
    write(Source(model), path, options, lambda what: None)
    return path


def assert_verified(model, runners, dtype="float32", steps=STEPS):
    report = verify(model, runners, dtype, steps=steps)
    assert report.passed, str(report)
    return report


@pytest.mark.parametrize("arch", NAMES)
def test_architecture(arch, tmp_path):
    model = small(arch)
    path = exported(model, tmp_path / "model.onnx", "scan")
    assert_verified(model, [OrtRunner(path, threads=1)])


def of_cell(cell, family, **options):
    """A model of any registered cell, in one of the families."""
    if cell == "nru":
        options["cell_options"] = "memory_size=4:heads=4:layer_norm=true"
    return small(f"lstm_{family}", cell=cell, **options)


@pytest.mark.parametrize("form", ["loop", "unrolled"])
def test_cell_in_other_forms(cell, form, tmp_path):
    model = of_cell(cell.name, "lm", decoder_layers=2)
    path = exported(model, tmp_path / "model.onnx", form)
    assert_verified(model, [OrtRunner(path, threads=1)])


def test_cell_in_the_reference_evaluator(cell, tmp_path):
    """onnx.reference shares no code with ONNX Runtime: where both agree, the result is what ONNX specifies."""
    assert_same_in_the_reference_evaluator(cell, "lm", "scan", tmp_path)


@pytest.mark.parametrize("family, form", [("classifier", "scan"), ("tagger", "unrolled")])
def test_family_in_the_reference_evaluator(representative_cell, family, form, tmp_path):
    assert_same_in_the_reference_evaluator(representative_cell, family, form, tmp_path)


def assert_same_in_the_reference_evaluator(cell, family, form, tmp_path):
    model = of_cell(cell.name, family)
    path = exported(model, tmp_path / "model.onnx", form)
    assert_verified(model, [ReferenceRunner(path)], steps=0)


def assert_rounded(cell, form, dtype, path):
    model = of_cell(cell.name, "lm", decoder_layers=2)
    report = assert_verified(
        model, [OrtRunner(exported(model, path, form, dtype), threads=1)], dtype
    )
    worst = max(c.outputs["logits"].absolute for c in report.checks if c.outputs)
    assert worst > 1e-5, "as exact as float32: the weights were not rounded"


def test_cell_with_smaller_weights(bounded_cell, tmp_path):
    assert_rounded(bounded_cell, "scan", "float16", tmp_path / "model.onnx")


@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("form", FORMS)
def test_form_with_smaller_weights(representative_cell, form, dtype, tmp_path):
    assert_rounded(representative_cell, form, dtype, tmp_path / "model.onnx")


TOKENS, ONE_HOT, VALUES = {"decoder_embed_dim": 5}, {"decoder_embed_dim": 0}, {"input_size": 3}


@pytest.mark.parametrize(
    "family, reads",
    [(family, reads) for family in FAMILIES for reads in (TOKENS, ONE_HOT)]
    + [("classifier", VALUES), ("tagger", VALUES)],
)
def test_lstm_operator(family, reads, tmp_path):
    model = small(f"lstm_{family}", decoder_layers=2, **reads)
    path = exported(model, tmp_path / "model.onnx", "lstm_op")
    assert_verified(model, [OrtRunner(path, threads=1)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["plstm", "nru"])
def test_values_and_tags(name, form, tmp_path):
    model = of_cell(name, "tagger", input_size=3, decoder_layers=2)
    path = exported(model, tmp_path / "model.onnx", form)
    assert_verified(model, [OrtRunner(path, threads=1)])


def test_every_preset_of_every_family_is_a_small_model():
    """`small` really makes models small: no width of a preset remains."""
    for arch in (name for family in FAMILIES for name in list_architectures(family)):
        model = small(arch)
        assert {layer.hidden_size for layer in model.layers} <= {5, 6}, arch
