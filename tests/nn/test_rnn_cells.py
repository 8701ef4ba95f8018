"""tsm.nn.RNN over every registered cell: a stack equals its layers, and a row in a batch equals the row
alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tolerances import assert_close
from tsm.nn import PLSTM, RNN
from tsm.plugin.cells.tape.torch_ops import TorchOps
from tsm.plugin.layers import Recurrent
from tsm.plugin.layers.parameters import all_rows

B, T, I, H = 3, 7, 4, 6
LENGTHS = [4, 7, 1]
exact = {"dtype": torch.float64}


def make(cell, **arguments):
    torch.manual_seed(2)
    return RNN(cell if isinstance(cell, str) else cell.name, I, H, **arguments, **exact)


def times(cell, *shape):
    return torch.rand(shape, **exact) + 0.5 if cell.takes_dt else None


def as_tuple(state):
    return state if isinstance(state, tuple) else (state,)


def layer_of(rnn, suffix, width):
    """A Recurrent with the same weights."""
    layer = Recurrent(rnn.cell.name, width, H).double()
    own = {"weight_x": "weight_ih", "weight_h": "weight_hh"}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name == "bias":
                parameter.copy_(all_rows(rnn.cell, "x", getattr(rnn, f"bias_ih{suffix}")))
                if rnn.cell.gates_of("h"):
                    parameter.add_(all_rows(rnn.cell, "h", getattr(rnn, f"bias_hh{suffix}")))
            else:
                parameter.copy_(getattr(rnn, own.get(name, name) + suffix))
    return layer


def test_a_stack_is_its_layers(cell):
    """The stack equals both directions of two layers built by hand from `Recurrent`; gradients reach every
    parameter."""
    rnn = make(cell, num_layers=2, bidirectional=True, batch_first=True)
    x, dt = torch.randn(B, T, I, **exact), times(cell, B, T)
    output, last = rnn(x, dt=dt)
    back = None if dt is None else torch.cat([dt[:, :1], dt[:, 1:].flip(1)], 1)
    y, states = x, []
    for k in range(2):
        ahead, first = layer_of(rnn, f"_l{k}", y.shape[2])(y, dt=dt)
        behind, second = layer_of(rnn, f"_l{k}_reverse", y.shape[2])(y.flip(1), dt=back)
        y = torch.cat([ahead, behind.flip(1)], 2)
        states += [first, second]
    assert_close(output, y, "fused", "float64")
    for name, value in zip(rnn.cell.states, as_tuple(last), strict=True):
        assert_close(value, torch.stack([s[name] for s in states]), "fused", "float64", name)
    output.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in rnn.parameters())


def test_a_row_is_itself_in_any_batch(cell):
    """Packed, with lengths, or alone without a batch dimension: each row keeps its own states and time
    steps."""
    rnn = make(cell, num_layers=2, bidirectional=True, batch_first=True)
    x, dt = torch.randn(B, T, I, **exact), times(cell, B, T)
    hx = tuple(
        torch.rand(4, B, width, **exact)
        for width in rnn.cell.widths(H, rnn.over_time.options).values()
    )
    hx = hx if len(hx) > 1 else hx[0]
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, last = rnn(packed, hx, dt=dt)
    outputs, _ = pad_packed_sequence(outputs, batch_first=True)
    cut, cut_last = rnn(x, hx, dt=dt, lengths=LENGTHS)
    assert_close(cut, outputs, "chunks", "float64")
    for row, length in enumerate(LENGTHS):
        own = tuple(s[:, row] for s in as_tuple(hx))
        alone, alone_last = rnn(
            x[row, :length],
            own if len(own) > 1 else own[0],
            dt=None if dt is None else dt[row, :length],
        )
        assert_close(outputs[row, :length], alone, "fused", "float64")
        assert not outputs[row, length:].any()
        for found in (last, cut_last):
            for a, b in zip(as_tuple(found), as_tuple(alone_last), strict=True):
                assert_close(a[:, row], b, "fused", "float64")


def test_chunks(cell):
    rnn = make(cell, num_layers=2)
    x, dt = torch.randn(T, B, I, **exact), times(cell, T, B)
    whole, last = rnn(x, dt=dt)
    first, state = rnn(x[:3], dt=None if dt is None else dt[:3])
    rest, state = rnn(x[3:], state, dt=None if dt is None else dt[3:])
    assert_close(torch.cat([first, rest]), whole, "fused", "float64")
    for a, b in zip(as_tuple(state), as_tuple(last), strict=True):
        assert_close(a, b, "fused", "float64")


def test_projection(cell):
    """The result equals the formula, step by step; a cell whose formula reads h refuses a projection."""
    if not cell.elementwise or "s.h" in cell.tape().inputs():
        with pytest.raises(ValueError, match=r"proj_size = 2 with cell .* reads h itself"):
            make(cell, proj_size=2)
        return
    rnn = make(cell, proj_size=2)
    x = torch.randn(T, B, I, **exact)
    widths = {**rnn.over_time.widths, "h": 2}
    state = {name: torch.rand(B, width, **exact) for name, width in widths.items()}
    output, last = rnn(x, tuple(value[None] for value in state.values()))
    vectors = rnn.over_time.vector_values(
        [getattr(rnn, f"{n}_l0") for n in rnn.over_time.raw_names]
    )
    weights = {"weight_h": rnn.weight_hh_l0}
    zx = torch.nn.functional.linear(x, rnn.weight_ih_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0)
    for t in range(T):
        options = rnn.over_time.options
        state = cell.advance(TorchOps, zx[t], state["h"], weights, state, vectors, options, 1.0)
        state["h"] = state["h"] @ rnn.weight_hr_l0.T
        assert_close(output[t], state["h"], "fused", "float64", f"y[{t}]")
    for name, value in zip(cell.states, last, strict=True):
        assert_close(value[0], state[name], "fused", "float64", name)


def test_dt_in_every_shape():
    rnn = PLSTM(I, H, bidirectional=True, **exact)
    x = torch.randn(T, B, I, **exact)
    per_step = torch.rand(T, **exact) + 0.5
    expected = rnn(x, dt=per_step[:, None].expand(T, B))[0]
    assert torch.equal(rnn(x, dt=per_step)[0], expected)
    assert torch.equal(rnn(x, dt=per_step[:, None])[0], expected)
    assert torch.equal(rnn(x, dt=2)[0], rnn(x, dt=torch.full((T, B), 2.0))[0])
    per_row = torch.rand(1, B, **exact) + 0.5
    assert torch.equal(rnn(x, dt=per_row)[0], rnn(x, dt=per_row.expand(T, B))[0])
    dt = torch.rand(T, B, **exact) + 0.5
    packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    packed_dt = pack_padded_sequence(dt, LENGTHS, enforce_sorted=False)
    assert_close(
        rnn(packed, dt=packed_dt)[0].data, rnn(packed, dt=dt.T)[0].data, "chunks", "float64"
    )
    with pytest.raises(ValueError, match="dt is a PackedSequence"):
        rnn(x, dt=packed_dt)


def test_fixed_vectors_and_initialisers():
    rnn = make("plstm", num_layers=2, p=0.7, init="chrono", init_options={"t_max": 20})
    assert "p_l1" in rnn.state_dict() and not [n for n, _ in rnn.named_parameters() if "p_" in n]
    assert (
        not rnn.bias_hh_l1[:H].any() and rnn.bias_ih_l1[:H].any()
    )  # the gate r, which chrono sets
    with pytest.raises(ValueError, match=r"init = 'multi_timescale' freezes biases"):
        make("lstm", init="multi_timescale", init_options={"alpha": 0.56})
    with pytest.raises(ValueError, match=r"init = 'forget_one' sets biases; .* bias=False"):
        make("lstm", init="forget_one", bias=False)
