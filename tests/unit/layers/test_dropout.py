"""Dropout for sequences: what shares a mask, what masks do not change, and where gradients flow."""

from __future__ import annotations

import pytest
import torch

from tsm.export.contract.samples import backends
from tsm.plugin.cells import Cell, get_cell
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.dropout import locked_dropout, weight_drop, word_mask
from tsm.plugin.layers.embedding import scaled

B, T, C, V = 4, 6, 50, 40
P = 0.25


def test_locked_mask_is_the_same_at_every_step_and_differs_between_rows() -> None:
    y = locked_dropout(torch.ones(B, T, C), P, training=True)
    assert torch.equal(y, y[:, :1].expand_as(y))
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - P)).item()}
    assert not torch.equal(y[0], y[1])


def test_embedding_dropout_drops_whole_words_wherever_they_occur() -> None:
    tokens = torch.arange(V).repeat(2, 3)
    x = torch.ones(2, 3 * V, C)
    y = scaled(x, tokens, word_mask(x, V, P, training=True))
    words = y.reshape(2, 3, V, C)
    assert torch.equal(words, words[:1, :1, :, :1].expand_as(words))
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - P)).item()}


@pytest.mark.parametrize("rate, training", [(P, False), (0.0, True)])
def test_no_dropout_is_the_identity(rate: float, training: bool) -> None:
    x = torch.randn(B, T, C)
    tokens = torch.zeros(B, T, dtype=torch.int64)
    assert torch.equal(locked_dropout(x, rate, training), x)
    assert torch.equal(scaled(x, tokens, word_mask(x, V, rate, training)), x)
    assert torch.equal(weight_drop(x, rate, training), x)


def test_dropout_keeps_the_mean() -> None:
    y = locked_dropout(torch.ones(300, 1, 300), P, training=True)
    assert y.mean().item() == pytest.approx(1, abs=0.01)  # 5 standard deviations


@pytest.mark.parametrize("backend", backends(get_cell("plstm"), torch.float32))
def test_weight_drop_gradient_reaches_the_raw_weight(backend: str) -> None:
    """The gradient is the mask times the gradient of a layer with the masked weight."""
    x = torch.randn(B, T, 3)
    layer = Recurrent("plstm", 3, 8, backend=backend, weight_dropout=P)
    torch.manual_seed(3)
    y, _ = layer(x)
    y.square().sum().backward()
    assert layer.weight_h.is_leaf and layer.weight_h.grad is not None

    torch.manual_seed(3)
    mask = weight_drop(torch.ones_like(layer.weight_h), P, training=True)
    plain = Recurrent("plstm", 3, 8, backend=backend)
    plain.load_state_dict({**layer.state_dict(), "weight_h": layer.weight_h.detach() * mask})
    expected, _ = plain(x)
    expected.square().sum().backward()
    assert 0 < int((mask == 0).sum()) < mask.numel()
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(layer.weight_h.grad, plain.weight_h.grad * mask)
    assert int(layer.weight_h.grad.count_nonzero()) > 0


def test_weight_drop_is_drawn_in_each_call_and_in_training_only() -> None:
    x = torch.randn(B, T, 3)
    layer = Recurrent("lstm", 3, 8, weight_dropout=0.5)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    assert sorted(layer.state_dict()) == ["bias", "weight_h", "weight_x"]


def test_frozen_recurrent_weight_keeps_its_values() -> None:
    layer = Recurrent("lstm", 3, 8, weight_dropout=0.5, freeze_recurrent=True)
    before = layer.weight_h.detach().clone()
    optimizer = torch.optim.SGD([p for p in layer.parameters() if p.requires_grad], lr=1.0)
    layer(torch.randn(B, T, 3))[0].sum().backward()
    optimizer.step()
    assert layer.weight_h.grad is None and torch.equal(layer.weight_h, before)
    assert layer.weight_x.grad is not None


@pytest.mark.parametrize("name", ["weight_dropout", "input_dropout"])
@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan"), True, "half"])
def test_a_rate_outside_its_range_is_named(rate: object, name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} = .*accepted: 0 <= {name} < 1"):
        Recurrent("lstm", 3, 8, **{name: rate})  # type: ignore[arg-type]


def test_dropout_of_the_input_is_drawn_before_that_of_the_weights(cell: type[Cell]) -> None:
    """The same as dropout outside the layer, also where U gets rows of zeros."""
    layer = Recurrent(cell.name, 3, 8, weight_dropout=P if cell.gates_of("h") else 0.0)
    x, found = torch.randn(B, T, 3), []
    for rate in (P, 0.0):
        torch.manual_seed(3)
        layer.input_dropout = rate
        found.append(layer(x if rate else locked_dropout(x, P, True))[0])
    assert torch.equal(*found)
    assert not torch.equal(found[0], layer(x)[0])
