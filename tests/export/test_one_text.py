"""One text, many programs: every exported form agrees with PyTorch, however the text is split into chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tsm.export import export
from tsm.export.common.formats import Options, get_format
from tsm.export.common.runner import feed, in_chunks
from tsm.export.entry import as_source
from tsm.export.onnx.runners import ReferenceRunner
from tsm.export.verify.checks import cuts_of
from tsm.export.verify.reference import Reference
from tsm.plugin.trained import open_trained

FORMS = [
    ("onnx", "scan", None),
    ("onnx", "loop", None),
    ("onnx", "unrolled", 7),
    ("torchscript", "loop", None),
    ("torchscript", "unrolled", 5),
    ("pt2", None, None),
    ("tsm", None, None),
]
TOLERANCE = 1e-4


def opened(path, tmp_path, format, form, chunk_size):
    """The runners of the exported file, without onnx.reference, which is too slow for a text."""
    made = tmp_path / f"{form}.{format}"
    export(path, made, format, form, chunk_size, steps=0)
    options = Options(form, chunk_size)
    found = get_format(format).runners(made, options)
    return [runner for runner in found if not isinstance(runner, ReferenceRunner)]


@pytest.mark.parametrize("kind", ["word", "char"])
def test_same_text_same_answers(kind, word, char, tmp_path):
    trained = {"word": word, "char": char}[kind]
    opened_model = open_trained(trained.path)
    tokenizer, vocab = opened_model.tokenizer, opened_model.vocab
    lines = trained.text.splitlines(keepends=tokenizer.unit == "block")
    tokens = np.array([i for line in lines for i in tokenizer.encode_line(line, vocab)])[None, :600]
    with torch.no_grad():
        plain, _ = opened_model.model(torch.from_numpy(tokens))
    exact, _ = Reference(opened_model.model).run(tokens)
    answers = {"PyTorch float32": plain.numpy()}
    rng = np.random.default_rng(7)
    for format, form, chunk_size in FORMS:
        for runner in opened(trained.path, tmp_path, format, form, chunk_size):
            cuts = cuts_of(rng, tokens.shape[1], largest=40)
            assert len(set(cuts)) > 5
            answers[f"{runner.name} {form}"] = in_chunks(runner, cuts, tokens)[0]
    assert len(answers) == 1 + len(FORMS)
    for name, logits in answers.items():
        assert logits.shape == exact.shape, name
        assert np.abs(logits - exact).max() < TOLERANCE, name
        assert (logits.argmax(-1) == exact.argmax(-1)).all(), name


def test_int8_of_onnx_and_of_the_runtime_round_alike(word, tmp_path):
    """Both scale each row by its largest number; they differ by float32 rounding and rare ties."""
    source = as_source(word.path)
    rng = np.random.default_rng(8)
    x = rng.integers(0, source.model.sizes.vocab_size, (2, 30))
    found = []
    for format in ("onnx", "tsm"):
        made = tmp_path / f"m.{format}"
        export(source, made, format, dtype="int8", steps=0)
        runner = get_format(format).runners(made, Options(dtype="int8"))[0]
        found.append(feed(runner, x)[0])
    exact, _ = Reference(source.model).run(x)
    apart, off = np.abs(found[0] - found[1]).mean(), np.abs(found[0] - exact).mean()
    assert apart < off / 3, (apart, off)
