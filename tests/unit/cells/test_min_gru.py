"""minGRU equals the paper's formulas, written out here in float64; and it has no U anywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tolerances import assert_close
from tsm.export.contract.samples import backends
from tsm.export.tsm.package import model_tensors, package
from tsm.plugin import build_model
from tsm.plugin.cells import get_cell
from tsm.plugin.layers import Recurrent
from tsm.plugin.nn import RNN
from tsm.runtime import Model

B, T, I, H = 3, 40, 4, 5


def papers(x, of_z, of_candidate, h):
    """y in the sequential mode of Feng et al. 2024, given (weight, bias) of z and of the candidate."""
    y = []
    for step in x.swapaxes(0, 1):
        z = 1 / (1 + np.exp(-(step @ of_z[0].T + of_z[1])))
        candidate = step @ of_candidate[0].T + of_candidate[1]
        h = (1 - z) * h + z * candidate
        y.append(h)
    return np.stack(y, 1)


@pytest.mark.parametrize("backend", backends(get_cell("min_gru"), torch.float64))
def test_equals_the_paper(backend):
    """The paper's update gate z is 1 - u, so the weights and bias of u are those of z with the opposite
    sign."""
    layer = Recurrent("min_gru", I, H, backend=backend).double()
    x, h = (torch.randn(*shape, dtype=torch.float64) for shape in ((B, T, I), (B, H)))
    y, last = layer(x, {"h": h})
    weight, bias = (p.detach().numpy() for p in (layer.weight_x, layer.bias))
    expected = papers(x.numpy(), (-weight[:H], -bias[:H]), (weight[H:], bias[H:]), h.numpy())
    assert_close(y, expected, "paper", "float64")
    assert torch.equal(last["h"], y[:, -1])


@pytest.mark.parametrize("backend", backends(get_cell("min_gru"), torch.float64))
def test_gradients(backend):
    layer = Recurrent("min_gru", I, H, backend=backend).double()
    x = torch.randn(B, T, I, dtype=torch.float64, requires_grad=True)
    layer(x)[0].square().sum().backward()
    found = [x.grad, layer.weight_x.grad, layer.bias.grad]
    u, g = torch.nn.functional.linear(x, layer.weight_x, layer.bias).chunk(2, 2)
    h, total = torch.zeros(B, H, dtype=torch.float64), 0
    for t in range(T):
        h = torch.sigmoid(u[:, t]) * h + torch.sigmoid(-u[:, t]) * g[:, t]
        total = total + h.square().sum()
    wanted = torch.autograd.grad(total, [x, layer.weight_x, layer.bias])
    for name, one, other in zip(("x", "weight_x", "bias"), found, wanted, strict=True):
        assert_close(one, other, "torch_layer", "float64", name)


def test_no_parameter_has_a_size_of_u():
    layer = Recurrent("min_gru", I, H)
    assert layer.weight_h is None and sorted(layer.state_dict()) == ["bias", "weight_x"]
    rnn = RNN("min_gru", I, H, num_layers=2)
    assert {name[: name.rindex("_l")] for name in rnn.state_dict()} == {"weight_ih", "bias_ih"}


def test_what_acts_on_u_is_refused():
    for given in ({"weight_dropout": 0.5}, {"freeze_recurrent": True}):
        with pytest.raises(ValueError, match="'min_gru', which has no recurrent weights"):
            Recurrent("min_gru", I, H, **given)


def test_a_model_file_has_no_u(tmp_path):
    """A stream reads only W: 2 H (I + 1) numbers per layer, besides the decoder's."""
    model = build_model("min_gru_tagger", input_size=I, num_classes=2, decoder_hidden_size=H)
    assert not [name for name in model_tensors(model) if "weight_h" in name]
    package(model, tmp_path / "model.tsm")
    stream = Model.load(tmp_path / "model.tsm").create_stream()
    x = torch.randn(T, I)
    with torch.no_grad():
        expected = model(x[None])[0][0]
    found = torch.cat([torch.from_numpy(stream.feed(part.numpy())) for part in x.split([1, 7, 32])])
    assert_close(found, expected, "stream", "float32")
