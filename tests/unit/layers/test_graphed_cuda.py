"""Layers under torch.cuda.make_graphed_callables, as docs/layer.md recommends for small ones: the same bits as
without graphs."""

from __future__ import annotations

import gc

import pytest
import torch

import tsm.nn
from tsm.plugin.layers import Recurrent

pytestmark = pytest.mark.gpu

INPUT, BATCH, STEPS, HIDDEN = 10, 8, 6, 24


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def graphed(layer, sample):
    gc.collect()  # memory of an old graph that is freed while another is captured ends the capture
    return torch.cuda.make_graphed_callables(layer, (sample,))


def update(layer, x, weight):
    """y and the gradients of x and the parameters."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)[0]
    y.backward(weight)
    return [t.detach().clone() for t in (y, x.grad, *(p.grad for p in layer.parameters()))]


def assert_same_bits(layer):
    torch.manual_seed(1)
    inputs = [(drawn(BATCH, STEPS, INPUT), drawn(BATCH, STEPS, HIDDEN)) for _ in range(3)]
    expected = [update(layer, *pair) for pair in inputs]
    layer = graphed(layer, drawn(BATCH, STEPS, INPUT).requires_grad_())
    for pair, plain in zip(inputs, expected, strict=True):
        for found, wanted in zip(update(layer, *pair), plain, strict=True):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)  # NaN is not equal to NaN


def test_every_compiled_cell(compiled_cell):
    torch.manual_seed(0)
    assert_same_bits(Recurrent(compiled_cell.name, INPUT, HIDDEN).to("cuda", torch.bfloat16))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", [tsm.nn.LSTM, tsm.nn.GRU, tsm.nn.PLSTM])
def test_layers_like_torchs(kind, layers):
    torch.manual_seed(0)
    made = kind(INPUT, HIDDEN, num_layers=layers, batch_first=True, device="cuda")
    assert_same_bits(made.to(torch.bfloat16))


def test_masks_are_drawn_anew_in_every_call():
    layer = Recurrent("lstm", INPUT, HIDDEN, weight_dropout=0.5).to("cuda", torch.bfloat16)
    layer = graphed(layer, drawn(BATCH, STEPS, INPUT).requires_grad_())
    x, weight = drawn(BATCH, STEPS, INPUT), drawn(BATCH, STEPS, HIDDEN)
    first, second = (update(layer, x, weight)[0] for _ in range(2))
    assert not torch.equal(first, second)
