"""One model of realistic size in each form: it exports and verifies, and its file is little more than its
weights."""

from __future__ import annotations

import pytest
import torch

from tsm.export import export
from tsm.plugin import build_model

MODELS = {
    "scan": ("awd_lstm_lm_ptb", {"vocab_size": 10_000}, None),  # 3 layers, 1150 units, tied
    "loop": ("plstm_lm_ptb_char", {"vocab_size": 50}, None),
    "unrolled": ("plstm_lm_text8", {"vocab_size": 27}, 16),
    "lstm_op": ("lstm_lm_ptb_char", {"vocab_size": 50}, None),
}


@pytest.mark.nightly
@pytest.mark.parametrize("form", MODELS)
def test_real_size(form, tmp_path):
    arch, sizes, chunk_size = MODELS[form]
    torch.manual_seed(0)
    model = build_model(arch, **sizes).eval()
    path = tmp_path / "model.onnx"
    report = export(model, path, "onnx", form, chunk_size, steps=60)
    assert report.passed
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert weights < path.stat().st_size <= 1.02 * weights


@pytest.mark.nightly
def test_int8_file_is_a_quarter(tmp_path):
    model = build_model("plstm_lm_ptb_char", vocab_size=50).eval()
    path = tmp_path / "model.onnx"
    export(model, path, "onnx", dtype="int8", steps=60)
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert weights < path.stat().st_size <= 1.06 * weights
