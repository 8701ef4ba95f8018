"""tsm.nn.LSTM and GRU compared with torch's: outputs, states and gradients for every combination of
arguments."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tolerances import assert_close
from tsm.nn import GRU, LSTM

B, T, I, H = 4, 6, 3, 5
LENGTHS = {"sorted": [6, 4, 4, 1], "unsorted": [2, 6, 1, 5], "equal": [6, 6, 6, 6]}
ARGUMENTS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "proj_size": proj}
    for layers, both, bias, proj in itertools.product((1, 2), (False, True), (True, False), (0, 2))
]
UNPROJECTED = [
    {name: value for name, value in arguments.items() if name != "proj_size"}
    for arguments in ARGUMENTS
    if not arguments["proj_size"]
]
LAYERS = [(LSTM, arguments) for arguments in ARGUMENTS] + [(GRU, a) for a in UNPROJECTED]
"""torch's GRU has no projection."""

WIDTHS = [(LSTM, {}), (LSTM, {"proj_size": 2}), (GRU, {})]

both_layers = pytest.mark.parametrize("layer", [LSTM, GRU])


def named(value):
    if not isinstance(value, dict):
        return getattr(value, "__name__", None)
    return "-".join(f"{name}={setting}" for name, setting in value.items())


def pair(layer, dtype=torch.float64, **arguments):
    torch.manual_seed(3)
    theirs = layer.torch_layer(I, H, **arguments).to(dtype)
    return theirs, layer.from_torch(theirs)


def projected(layer, width=2):
    return {} if layer is GRU else {"proj_size": width}


def as_tuple(hidden):
    return hidden if isinstance(hidden, tuple) else (hidden,)


def states(rnn, dtype=torch.float64, batch: int | None = B):
    """The states in the form that the layer takes: (h, c), or h."""
    torch.manual_seed(4)
    rows = rnn.num_layers * (2 if rnn.bidirectional else 1)
    shape = (rows,) if batch is None else (rows, batch)
    widths = (H,) if isinstance(rnn, (GRU, nn.GRU)) else (rnn.proj_size or H, H)
    made = [torch.randn(*shape, width, dtype=torch.float64).to(dtype) for width in widths]
    return tuple(made) if len(made) > 1 else made[0]


def given(kind, batch_first, dtype=torch.float64):
    """The leaf whose gradient is compared, and the input made from it."""
    torch.manual_seed(5)
    shape = (T, I) if kind == "unbatched" else (B, T, I) if batch_first else (T, B, I)
    x = torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()
    if kind not in LENGTHS:
        return x, x
    ordered = kind != "unsorted"
    return x, pack_padded_sequence(x, LENGTHS[kind], batch_first, enforce_sorted=ordered)


def everything(rnn, kind, with_state, dtype=torch.float64):
    """Output, states, and the gradients of a generic scalar function of them."""
    x, value = given(kind, rnn.batch_first, dtype)
    hx = None
    if with_state:
        hx = states(rnn, dtype, None if kind == "unbatched" else B)
        for state in as_tuple(hx):
            state.requires_grad_()
    output, last = rnn(value, hx)
    y = output.data if isinstance(output, PackedSequence) else output
    generator = torch.Generator().manual_seed(6)
    total = sum(
        (torch.randn(t.shape, generator=generator, dtype=torch.float64).to(dtype) * t).sum()
        for t in (y, *as_tuple(last))
    )
    rnn.zero_grad()
    total.backward()
    found = {"y": y, **dict(zip("hc", as_tuple(last), strict=False)), "grad x": x.grad}
    found |= {f"grad {name}": p.grad for name, p in rnn.named_parameters()}
    if hx is not None:
        found |= {f"grad {n}_0": s.grad for n, s in zip("hc", as_tuple(hx), strict=False)}
    return found, output


@pytest.mark.parametrize("with_state", [False, True], ids=["fresh", "state"])
@pytest.mark.parametrize("kind", ["padded", "unbatched", *LENGTHS])
@pytest.mark.parametrize("layer, arguments", LAYERS, ids=named)
def test_outputs_states_and_gradients(layer, arguments, kind, with_state):
    theirs, ours = pair(layer, batch_first=arguments["bias"], **arguments)  # half of them
    expected, output = everything(theirs, kind, with_state)
    found, ours_output = everything(ours, kind, with_state)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found[name], value, "torch_layer", "float64", name)
    if not isinstance(output, PackedSequence):
        assert ours_output.is_contiguous()
        return
    for one, other in zip(output[1:], ours_output[1:], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "layer, arguments",
    [(LSTM, ARGUMENTS[0]), (LSTM, ARGUMENTS[13]), (GRU, UNPROJECTED[6])],
    ids=named,
)
def test_other_dtypes(layer, arguments, dtype):
    """bfloat16 is compared with torch in float64, because torch rounds every gate."""
    theirs, ours = pair(layer, dtype, **arguments)
    found, _ = everything(ours, "unsorted", True, dtype)
    exact = theirs.double() if dtype == torch.bfloat16 else theirs
    kind = torch.float64 if dtype == torch.bfloat16 else dtype
    expected, _ = everything(exact, "unsorted", True, kind)
    assert found["y"].dtype == found["h"].dtype == dtype
    for name in ("y", *ours.cell.states):
        name_of = str(dtype).removeprefix("torch.")
        assert_close(found[name].float(), expected[name].float(), "fused", name_of, name)
    if dtype == torch.float32:
        for name, value in expected.items():
            assert_close(found[name], value, "fused", "float32", name)


def test_the_same_seed_gives_the_same_weights():
    for layer, arguments in LAYERS:
        torch.manual_seed(1)
        theirs = layer.torch_layer(I, H, **arguments)
        torch.manual_seed(1)
        ours = layer(I, H, **arguments)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        for name, value in theirs.state_dict().items():
            assert torch.equal(value, ours.state_dict()[name]), name
        shapes = [[p.shape for p in layer] for layer in theirs.all_weights]
        assert [[p.shape for p in layer] for layer in ours.all_weights] == shapes


@both_layers
def test_state_dicts_are_interchangeable(layer):
    arguments = UNPROJECTED[-1] if layer is GRU else ARGUMENTS[-1]
    theirs, ours = pair(layer, **arguments)
    again = layer(I, H, **arguments, dtype=torch.float64)
    again.load_state_dict(theirs.state_dict())
    back = layer.torch_layer(I, H, **arguments, dtype=torch.float64)
    back.load_state_dict(ours.state_dict())
    x = torch.randn(T, B, I, dtype=torch.float64)
    assert torch.equal(again(x)[0], ours(x)[0]) and torch.equal(back(x)[0], theirs(x)[0])


@both_layers
def test_there_and_back(layer):
    made = layer.torch_layer(I, H, 2, dropout=0.3, bidirectional=True, dtype=torch.float64)
    theirs = made.eval()
    theirs.weight_hh_l1.requires_grad_(False)
    before = torch.get_rng_state()
    ours = layer.from_torch(theirs)
    back = ours.to_torch()
    assert type(back) is layer.torch_layer
    assert torch.equal(torch.get_rng_state(), before)
    for made in (ours, back):
        assert not made.training and made.dropout == 0.3 and not made.weight_hh_l1.requires_grad
        assert made.weight_ih_l0.requires_grad and made.weight_ih_l0.dtype == torch.float64
        assert made.weight_ih_l0.data_ptr() != theirs.weight_ih_l0.data_ptr()
    x = torch.randn(T, B, I, dtype=torch.float64)
    assert torch.equal(back(x)[0], theirs(x)[0])
    name = layer.__name__
    with pytest.raises(ValueError, match=rf"module is a RNN; accepted: torch\.nn\.{name}"):
        layer.from_torch(nn.RNN(I, H))


@both_layers
def test_chunks_with_the_state_passed_on(layer):
    theirs, ours = pair(layer, num_layers=2, **projected(layer))
    x = torch.randn(T, B, I, dtype=torch.float64)
    whole, last = ours(x)
    first, state = ours(x[:2])
    rest, state = ours(x[2:], state)
    assert_close(torch.cat([first, rest]), whole, "chunks", "float64")
    for one, other in zip(as_tuple(state), as_tuple(last), strict=True):
        assert_close(one, other, "chunks", "float64")
    mixed, _ = theirs(x[2:], ours(x[:2])[1])  # torch continues from our state
    assert_close(mixed, rest, "torch_layer", "float64")


@both_layers
def test_lengths_are_packing(layer):
    settings = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    _, ours = pair(layer, **settings, **projected(layer))
    x, packed = given("unsorted", True)
    hx = states(ours)
    expected, last = ours(packed, hx)
    output, found = ours(x, hx, lengths=LENGTHS["unsorted"])
    padded, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    assert torch.equal(output, padded)
    assert all(map(torch.equal, as_tuple(found), as_tuple(last)))


def test_a_row_of_length_0_keeps_its_state():
    for layer, arguments in WIDTHS:
        _, ours = pair(layer, bidirectional=True, **arguments)
        hx = states(ours)
        output, last = ours(torch.randn(T, B, I, dtype=torch.float64), hx, lengths=[2, 0, 6, 1])
        assert not output[:, 1].any()
        for before, after in zip(as_tuple(hx), as_tuple(last), strict=True):
            assert torch.equal(before[:, 1], after[:, 1])


@both_layers
def test_dropout_acts_between_layers(layer):
    _, ours = pair(layer, num_layers=2, dropout=0.5)
    x = torch.randn(T, B, I, dtype=torch.float64)
    without = layer(I, H, 2, dtype=torch.float64)
    without.load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(x)[0], without(x)[0])
    ours.train()
    first, second = as_tuple(ours(x)[1])[0], as_tuple(ours(x)[1])[0]
    assert torch.equal(first[0], second[0])  # the first layer has no dropout before it
    assert not torch.equal(first[1], second[1])
    torch.manual_seed(9)
    first = ours(x)[0]
    torch.manual_seed(9)
    assert torch.equal(first, ours(x)[0])
    ours.dropout = 1.0  # nothing reaches the second layer
    assert torch.equal(ours(x)[0], ours(torch.randn_like(x))[0])


@both_layers
def test_copies_and_pickles(layer):
    _, ours = pair(layer, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I, dtype=torch.float64)
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(copied(x)[0], ours(x)[0])
        with torch.no_grad():
            copied.weight_hh_l0.zero_()
        assert not torch.equal(copied(x)[0], ours(x)[0])


@both_layers
def test_compiled(layer):
    _, ours = pair(layer, num_layers=2, bidirectional=True, **projected(layer))
    x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    hx = states(ours)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    results = []
    for module in (ours, compiled):
        x.grad = None
        output, last = module(x, hx)
        (output.sin().sum() + as_tuple(last)[-1].sum()).backward()
        results.append((output, *as_tuple(last), x.grad))
    for expected, found in zip(*results, strict=True):
        assert_close(found, expected, "chunks", "float64")


@both_layers
def test_autocast(layer):
    theirs, ours = pair(layer, torch.float32, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I)
    expected, _ = theirs(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, last = ours(x)
    h, *others = as_tuple(last)
    assert output.dtype == h.dtype == torch.bfloat16
    assert all(state.dtype == torch.float32 for state in others)
    assert_close(output.float(), expected, "fused", "bfloat16")


@both_layers
def test_a_training_step_is_torchs(layer):
    """The parameters are the same, so the same optimizer makes the same step."""
    theirs, ours = pair(layer, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I, dtype=torch.float64)
    for rnn in (theirs, ours):
        optimizer = torch.optim.Adam(rnn.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            rnn(x)[0].square().sum().backward()
            optimizer.step()
    for name, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], value, "fused", "float64", name)


def test_no_steps_at_all():
    """torch refuses them."""
    for layer, arguments in WIDTHS:
        _, ours = pair(layer, num_layers=2, bidirectional=True, **arguments)
        hx = states(ours)
        output, last = ours(torch.empty(0, B, I, dtype=torch.float64), hx)
        assert output.shape == (0, B, ours.output_size)
        assert all(map(torch.equal, as_tuple(last), as_tuple(hx)))


@both_layers
def test_the_reference_can_be_differentiated_twice(layer):
    settings = {"backend": "reference", "dtype": torch.float64, **projected(layer, 1)}
    rnn = layer(2, 2, bidirectional=True, **settings)
    x = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: rnn(x)[0], (x,))
