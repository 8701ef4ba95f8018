"""The errors of tsm.nn and Recurrent for invalid arguments, inputs and states."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tsm.nn import LSTM, PLSTM, RNN
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.recurrent import OF_STACKS

X = torch.randn(7, 3, 5)
STATE = torch.zeros(2, 3, 8)


def test_the_arguments_are_torchs():
    """The arguments are in torch's order, with torch's defaults."""
    theirs = {
        "num_layers": 1,
        "bias": True,
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": False,
        "proj_size": 0,
        "device": None,
        "dtype": None,
    }
    parameters = list(inspect.signature(RNN).parameters.values())[1:]
    assert [p.name for p in parameters[:2]] == ["input_size", "hidden_size"]
    assert {p.name: p.default for p in parameters[2 : 2 + len(theirs)]} == theirs
    made = nn.LSTM(5, 8, 2, False, True, 0.1, True, 3)
    ours = LSTM(5, 8, 2, False, True, 0.1, True, 3)
    assert all(getattr(made, name) == getattr(ours, name) for name in list(theirs)[:-2])
    assert set(theirs) == set(OF_STACKS)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"input_size": 0}, "input_size = 0; accepted: an integer of at least 1"),
        ({"hidden_size": 2.0}, "hidden_size = 2.0"),
        ({"num_layers": 0}, "num_layers = 0"),
        ({"dropout": 1.5}, "dropout = 1.5; accepted: a number from 0 to 1"),
        ({"dropout": True}, "dropout = True"),
        ({"proj_size": 8}, r"proj_size = 8; accepted: 0 \(none\) to 7"),
        ({"proj_size": -1}, "proj_size = -1"),
        ({"backend": "fast"}, "backend = 'fast'"),
        ({"eps": 1}, "unknown option of cell 'lstm'"),
        ({"batchfirst": True}, r"unknown argument 'batchfirst'; did you mean batch_first\?"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        LSTM(**{"input_size": 5, "hidden_size": 8, **arguments})


def test_an_unknown_cell():
    with pytest.raises(ValueError, match=r"plstn.*did you mean.*plstm"):
        RNN("plstn", 5, 8)


@pytest.mark.parametrize(
    "value, message",
    [
        (torch.randn(7, 3, 4), r"input is \(7, 3, 4\); accepted: 5 \(input_size\)"),
        (torch.randn(7, 4), r"input is \(7, 4\); accepted: 5"),
        (
            torch.randn(5),
            r"input is \(5,\); accepted: a tensor \[T, B, 5\] or \[T, 5\], or a PackedSequence",
        ),
        (torch.randn(1, 7, 3, 5), r"input is \(1, 7, 3, 5\)"),
        ([1.0], "input is list; accepted: a tensor"),
        (pack_padded_sequence(torch.randn(7, 3, 4), [7, 7, 7]), "PackedSequence of .*accepted: 5"),
        (X.double(), r"x is torch.float64; accepted: the layer's torch.float32"),
    ],
)
def test_bad_inputs(value, message):
    with pytest.raises(ValueError, match=message):
        LSTM(5, 8)(value)


@pytest.mark.parametrize(
    "hx, message",
    [
        (STATE, r"hx is Tensor; accepted: \(h_0, c_0\)"),
        ((STATE,), "hx is a tuple of 1; accepted"),
        (
            (STATE, STATE[:1]),
            r"c_0 is torch.float32 \(1, 3, 8\); accepted: a float tensor \[2, 3, 8\]",
        ),
        ((STATE[:, :2], STATE), r"h_0 is torch.float32 \(2, 2, 8\)"),
        ((STATE[..., :7], STATE), r"h_0 is torch.float32 \(2, 3, 7\)"),
        ((STATE.long(), STATE), r"h_0 is torch.int64 \(2, 3, 8\); accepted: a float tensor"),
        ((None, STATE), "h_0 is NoneType"),
    ],
)
def test_bad_states(hx, message):
    with pytest.raises(ValueError, match=message):
        LSTM(5, 8, num_layers=2)(X, hx)
    with pytest.raises(ValueError, match=r"h_0 is .*accepted: a float tensor \[1, 8\]"):
        LSTM(5, 8)(X[:, 0], (STATE, STATE))  # without a batch
    with pytest.raises(ValueError, match=r"hx is tuple; accepted|hx is a tuple of 2; accepted"):
        PLSTM(5, 8)(X, (STATE, STATE))


def test_bad_lengths():
    with pytest.raises(ValueError, match="lengths has 8; accepted: 0 to T = 7"):
        LSTM(5, 8)(X, lengths=[8, 1, 1])
    with pytest.raises(ValueError, match="lengths was given with a PackedSequence"):
        LSTM(5, 8)(pack_padded_sequence(X, [7, 7, 7]), lengths=[7, 7, 7])
    with pytest.raises(ValueError, match="dt was given, but cell 'lstm' takes none"):
        LSTM(5, 8)(X, dt=1.0)


def test_dropout_of_one_layer_is_warned_of():
    with pytest.warns(UserWarning, match=r"dropout = 0.5 with num_layers = 1 does nothing"):
        LSTM(5, 8, dropout=0.5)


@pytest.mark.parametrize("name", OF_STACKS)
def test_recurrent_says_where_stacks_are(name):
    with pytest.raises(ValueError, match=rf"{name} = 2: Recurrent is one .*tsm\.nn\.RNN\('lstm'"):
        Recurrent("lstm", 5, 8, **{name: 2})


def test_recurrent_says_where_packing_is():
    with pytest.raises(ValueError, match=r"a PackedSequence; .*lengths=, or a layer of tsm\.nn"):
        Recurrent("lstm", 5, 8)(pack_padded_sequence(X, [7, 7, 7]))


def test_dt_of_recurrent_broadcasts():
    layer = Recurrent("plstm", 5, 8)
    x = X.transpose(0, 1)
    dt = torch.rand(7) + 0.5
    assert torch.equal(layer(x, dt=dt)[0], layer(x, dt=dt.expand(3, 7))[0])
    assert torch.equal(layer(x, dt=dt[:3, None])[0], layer(x, dt=dt[:3, None].expand(3, 7))[0])
    for number in (2, 2.0, torch.tensor(2.0)):
        assert torch.equal(layer(x, dt=number)[0], layer(x, dt=torch.full((3, 7), 2.0))[0])
    for wrong in (dt[:3], dt[:, None], dt.expand(1, 3, 7), torch.ones(7).long(), True):
        with pytest.raises(
            ValueError, match=r"dt is .*accepted: a number, or a float tensor \[7\]"
        ):
            layer(x, dt=wrong)


@pytest.mark.parametrize(
    ("batch_first", "accepted"), [(False, "[7], [1, 3] or [7, 3]"), (True, "[7], [3, 1] or [3, 7]")]
)
def test_a_wrong_dt_is_described_in_the_caller_s_layout(batch_first, accepted):
    layer = PLSTM(5, 8, batch_first=batch_first)
    x, wrong = (X.transpose(0, 1), (7, 3)) if batch_first else (X, (3, 7))
    said = re.escape(
        f"dt is torch.float32 {wrong}; accepted: a number, or a float tensor {accepted}"
    )
    with pytest.raises(ValueError, match=f"{said}$"):
        layer(x, dt=torch.ones(wrong))
    layer(x, dt=torch.ones(wrong[::-1]))


def test_a_layer_is_shown_as_torch_shows_it():
    shown = repr(nn.LSTM(5, 8, 2, batch_first=True, bidirectional=True))
    assert repr(LSTM(5, 8, 2, batch_first=True, bidirectional=True)) == shown
    assert repr(RNN("plstm", 5, 8, p=0.5)) == "RNN('plstm', 5, 8, eps=0.001, p=0.5)"


def test_device_and_dtype():
    made = RNN("plstm", 5, 8, 2, device="meta", dtype=torch.bfloat16, p=0.5)
    for value in made.state_dict().values():
        assert value.device.type == "meta" and value.dtype == torch.bfloat16


def test_importing_tsm_loads_no_torch():
    code = "import sys, tsm; assert 'nn' in dir(tsm) and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    import tsm

    assert tsm.nn.LSTM is LSTM
    with pytest.raises(AttributeError, match="has no attribute 'mm'"):
        _ = tsm.mm
