"""tsm.nn.LSTM beside torch.nn.LSTM: outputs, states and gradients for every combination of arguments."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from tolerances import assert_close
from tsm.nn import LSTM

B, T, I, H = 4, 6, 3, 5
LENGTHS = {"sorted": [6, 4, 4, 1], "unsorted": [2, 6, 1, 5], "equal": [6, 6, 6, 6]}
ARGUMENTS = [
    {"num_layers": layers, "bidirectional": both, "bias": bias, "proj_size": proj}
    for layers, both, bias, proj in itertools.product((1, 2), (False, True), (True, False), (0, 2))
]


def named(arguments):
    return "-".join(f"{name}={value}" for name, value in arguments.items())


def pair(dtype=torch.float64, **arguments):
    torch.manual_seed(3)
    theirs = nn.LSTM(I, H, **arguments).to(dtype)
    return theirs, LSTM.from_torch(theirs)


def states(lstm, dtype=torch.float64, batch: int | None = B):
    torch.manual_seed(4)
    rows = lstm.num_layers * (2 if lstm.bidirectional else 1)
    widths = (lstm.proj_size or H, H)
    shape = (rows,) if batch is None else (rows, batch)
    return tuple(torch.randn(*shape, width, dtype=torch.float64).to(dtype) for width in widths)


def given(kind, batch_first, dtype=torch.float64):
    """The leaf whose gradient is compared, and the input made of it."""
    torch.manual_seed(5)
    shape = (T, I) if kind == "unbatched" else (B, T, I) if batch_first else (T, B, I)
    x = torch.randn(shape, dtype=torch.float64).to(dtype).requires_grad_()
    if kind not in LENGTHS:
        return x, x
    ordered = kind != "unsorted"
    return x, pack_padded_sequence(x, LENGTHS[kind], batch_first, enforce_sorted=ordered)


def everything(lstm, kind, with_state, dtype=torch.float64):
    """Output, states and the gradients of a generic scalar of them."""
    x, value = given(kind, lstm.batch_first, dtype)
    hx = None
    if with_state:
        batch = None if kind == "unbatched" else B
        hx = tuple(s.requires_grad_() for s in states(lstm, dtype, batch))
    output, (h, c) = lstm(value, hx)
    y = output.data if isinstance(output, PackedSequence) else output
    generator = torch.Generator().manual_seed(6)
    total = sum(
        (torch.randn(t.shape, generator=generator, dtype=torch.float64).to(dtype) * t).sum()
        for t in (y, h, c)
    )
    lstm.zero_grad()
    total.backward()
    found = {"y": y, "h": h, "c": c, "grad x": x.grad}
    found |= {f"grad {name}": p.grad for name, p in lstm.named_parameters()}
    if hx is not None:
        found |= {"grad h_0": hx[0].grad, "grad c_0": hx[1].grad}
    return found, output


@pytest.mark.parametrize("with_state", [False, True], ids=["fresh", "state"])
@pytest.mark.parametrize("kind", ["padded", "unbatched", *LENGTHS])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=named)
def test_outputs_states_and_gradients(arguments, kind, with_state):
    theirs, ours = pair(batch_first=arguments["bias"], **arguments)  # half of them
    expected, output = everything(theirs, kind, with_state)
    found, ours_output = everything(ours, kind, with_state)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(found[name], value, "torch_lstm", "float64", name)
    if not isinstance(output, PackedSequence):
        assert ours_output.is_contiguous()
        return
    for one, other in zip(output[1:], ours_output[1:], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("arguments", [ARGUMENTS[0], ARGUMENTS[13]], ids=named)
def test_other_dtypes(arguments, dtype):
    """bfloat16: against torch in float64, since torch rounds every gate."""
    theirs, ours = pair(dtype, **arguments)
    found, _ = everything(ours, "unsorted", True, dtype)
    exact = theirs.double() if dtype == torch.bfloat16 else theirs
    kind = torch.float64 if dtype == torch.bfloat16 else dtype
    expected, _ = everything(exact, "unsorted", True, kind)
    assert found["y"].dtype == found["h"].dtype == dtype
    for name in ("y", "h", "c"):
        name_of = str(dtype).removeprefix("torch.")
        assert_close(found[name].float(), expected[name].float(), "fused", name_of, name)
    if dtype == torch.float32:
        for name, value in expected.items():
            assert_close(found[name], value, "fused", "float32", name)


def test_the_same_seed_gives_the_same_weights():
    for arguments in ARGUMENTS:
        torch.manual_seed(1)
        theirs = nn.LSTM(I, H, **arguments)
        torch.manual_seed(1)
        ours = LSTM(I, H, **arguments)
        assert list(theirs.state_dict()) == list(ours.state_dict())
        for name, value in theirs.state_dict().items():
            assert torch.equal(value, ours.state_dict()[name]), name
        shapes = [[p.shape for p in layer] for layer in theirs.all_weights]
        assert [[p.shape for p in layer] for layer in ours.all_weights] == shapes


def test_state_dicts_are_interchangeable():
    theirs, ours = pair(**ARGUMENTS[-1])
    again = LSTM(I, H, **ARGUMENTS[-1], dtype=torch.float64)
    again.load_state_dict(theirs.state_dict())
    back = nn.LSTM(I, H, **ARGUMENTS[-1], dtype=torch.float64)
    back.load_state_dict(ours.state_dict())
    x = torch.randn(T, B, I, dtype=torch.float64)
    assert torch.equal(again(x)[0], ours(x)[0]) and torch.equal(back(x)[0], theirs(x)[0])


def test_there_and_back():
    theirs = nn.LSTM(I, H, 2, dropout=0.3, bidirectional=True, dtype=torch.float64).eval()
    theirs.weight_hh_l1.requires_grad_(False)
    before = torch.get_rng_state()
    ours = LSTM.from_torch(theirs)
    back = ours.to_torch()
    assert torch.equal(torch.get_rng_state(), before)
    for made in (ours, back):
        assert not made.training and made.dropout == 0.3 and not made.weight_hh_l1.requires_grad
        assert made.weight_ih_l0.requires_grad and made.weight_ih_l0.dtype == torch.float64
        assert made.weight_ih_l0.data_ptr() != theirs.weight_ih_l0.data_ptr()
    x = torch.randn(T, B, I, dtype=torch.float64)
    assert torch.equal(back(x)[0], theirs(x)[0])
    with pytest.raises(ValueError, match=r"module is a GRU; accepted: torch\.nn\.LSTM"):
        LSTM.from_torch(nn.GRU(I, H))


def test_chunks_with_the_state_passed_on():
    theirs, ours = pair(num_layers=2, proj_size=2)
    x = torch.randn(T, B, I, dtype=torch.float64)
    whole, last = ours(x)
    first, state = ours(x[:2])
    rest, state = ours(x[2:], state)
    assert_close(torch.cat([first, rest]), whole, "chunks", "float64")
    for one, other in zip(state, last, strict=True):
        assert_close(one, other, "chunks", "float64")
    mixed, _ = theirs(x[2:], ours(x[:2])[1])  # torch goes on from our state
    assert_close(mixed, rest, "torch_lstm", "float64")


def test_lengths_are_packing():
    _, ours = pair(num_layers=2, bidirectional=True, proj_size=2, batch_first=True)
    x, packed = given("unsorted", True)
    hx = states(ours)
    expected, last = ours(packed, hx)
    output, found = ours(x, hx, lengths=LENGTHS["unsorted"])
    padded, _ = nn.utils.rnn.pad_packed_sequence(expected, batch_first=True)
    assert torch.equal(output, padded)
    assert all(map(torch.equal, found, last))


def test_a_row_of_length_0_keeps_its_state():
    for proj_size in (0, 2):
        _, ours = pair(bidirectional=True, proj_size=proj_size)
        hx = states(ours)
        output, last = ours(torch.randn(T, B, I, dtype=torch.float64), hx, lengths=[2, 0, 6, 1])
        assert not output[:, 1].any()
        for before, after in zip(hx, last, strict=True):
            assert torch.equal(before[:, 1], after[:, 1])


def test_dropout_acts_between_layers():
    _, ours = pair(num_layers=2, dropout=0.5)
    x = torch.randn(T, B, I, dtype=torch.float64)
    without = LSTM.from_torch(nn.LSTM(I, H, 2, dtype=torch.float64))
    without.load_state_dict(ours.state_dict())
    assert torch.equal(ours.eval()(x)[0], without(x)[0])
    ours.train()
    first, second = ours(x)[1][0], ours(x)[1][0]
    assert torch.equal(first[0], second[0])  # of the first layer, which sees no dropout
    assert not torch.equal(first[1], second[1])
    torch.manual_seed(9)
    first = ours(x)[0]
    torch.manual_seed(9)
    assert torch.equal(first, ours(x)[0])
    ours.dropout = 1.0  # nothing goes on to the second layer
    assert torch.equal(ours(x)[0], ours(torch.randn_like(x))[0])


def test_copies_and_pickles():
    _, ours = pair(num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I, dtype=torch.float64)
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(copied(x)[0], ours(x)[0])
        with torch.no_grad():
            copied.weight_hh_l0.zero_()
        assert not torch.equal(copied(x)[0], ours(x)[0])


def test_compiled():
    _, ours = pair(num_layers=2, bidirectional=True, proj_size=2)
    x = torch.randn(T, B, I, dtype=torch.float64, requires_grad=True)
    hx = states(ours)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    results = []
    for module in (ours, compiled):
        x.grad = None
        output, last = module(x, hx)
        (output.sin().sum() + last[1].sum()).backward()
        results.append((output, *last, x.grad))
    for expected, found in zip(*results, strict=True):
        assert_close(found, expected, "chunks", "float64")


def test_autocast():
    theirs, ours = pair(torch.float32, num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I)
    expected, _ = theirs(x)
    with torch.autocast("cpu", torch.bfloat16):
        output, (h, c) = ours(x)
    assert output.dtype == h.dtype == torch.bfloat16 and c.dtype == torch.float32
    assert_close(output.float(), expected, "fused", "bfloat16")


def test_a_training_step_is_torchs():
    """Parameters are the same ones, so the same optimizer does the same."""
    theirs, ours = pair(num_layers=2, bidirectional=True)
    x = torch.randn(T, B, I, dtype=torch.float64)
    for lstm in (theirs, ours):
        optimizer = torch.optim.Adam(lstm.parameters(), 0.01)
        for _ in range(3):
            optimizer.zero_grad()
            lstm(x)[0].square().sum().backward()
            optimizer.step()
    for name, value in theirs.state_dict().items():
        assert_close(ours.state_dict()[name], value, "fused", "float64", name)


def test_no_steps_at_all():
    """torch refuses them."""
    for proj_size in (0, 2):
        _, ours = pair(num_layers=2, bidirectional=True, proj_size=proj_size)
        hx = states(ours)
        output, last = ours(torch.empty(0, B, I, dtype=torch.float64), hx)
        assert output.shape == (0, B, ours.output_size)
        assert all(map(torch.equal, last, hx))


def test_the_reference_can_be_differentiated_twice():
    lstm = LSTM(2, 2, bidirectional=True, proj_size=1, backend="reference", dtype=torch.float64)
    x = torch.randn(2, 1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: lstm(x)[0], (x,))
