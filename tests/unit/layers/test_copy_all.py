"""Copies of many arrays at once: every bit arrives, and nothing beside the places is written."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.layers import copy_all as module
from tsm.plugin.layers.copy_all import AT_ONCE, copy_all

DTYPES = [torch.int64, torch.float32, torch.bfloat16, torch.bool, torch.float64, torch.int32]


def bits(shape, dtype, device):
    """Values of any bits, as floats also infinities and subnormal numbers. Integers look like NaN, too, if they
    are read as floats; floats are no NaN, since torch may change its bits."""
    size = torch.empty(shape, dtype=dtype).numel() * dtype.itemsize
    drawn = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8)
    values = drawn.view(dtype).reshape(shape)
    values = values.nan_to_num(nan=1.5, posinf=torch.inf, neginf=-torch.inf)
    return values.to(device)


def as_bytes(tensor):
    return tensor.contiguous().view(torch.uint8).cpu()


def slices(dtype, device):
    """(value, place) of the kinds that batches and states have."""

    def whole(*shape):
        return bits(shape, dtype, device)

    yield whole(5), whole(5)
    yield whole(4, 9)[:, 1:8], whole(4, 7)
    yield whole(2, 4, 10)[1, :, :7], whole(4, 7)
    yield whole(4, 7), whole(4, 9)[:, :7]
    yield whole(3, 4, 5), whole(3, 4, 5)
    yield whole(7, 4).t(), whole(4, 7)
    yield whole(1).expand(6), whole(6)
    yield whole(0, 3), whole(0, 3)
    yield whole(1)[0], whole(1)[0]
    yield whole(2, 2, 2, 2), whole(2, 2, 2, 2)


def check(device):
    torch.manual_seed(0)
    pairs = [pair for dtype in DTYPES for pair in slices(dtype, device)]
    around = [place._base if place._base is not None else place for _, place in pairs]
    expected = [t.clone() for t in around]
    for (value, place), whole in zip(pairs, expected, strict=True):
        whole.as_strided(place.shape, place.stride(), place.storage_offset()).copy_(value)
    copy_all(*zip(*pairs, strict=True))
    assert len(pairs) > AT_ONCE
    for found, whole in zip(around, expected, strict=True):
        assert torch.equal(as_bytes(found), as_bytes(whole))


def test_without_kernels():
    check("cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_place_of_another_shape_is_refused(device):
    value, place = torch.ones(3, device=device), torch.zeros(5, device=device)
    with pytest.raises(RuntimeError):
        copy_all([value], [place])


@pytest.mark.gpu
def test_on_a_gpu():
    check("cuda")


@pytest.mark.gpu
def test_a_batch_and_its_states_take_one_launch(monkeypatch):
    launched = []
    original = module._launch
    monkeypatch.setattr(module, "_launch", lambda pairs: (launched.append(1), original(pairs)))
    monkeypatch.setattr(torch, "_foreach_copy_", None)
    tokens = torch.arange(20 * 71, device="cuda").reshape(20, 71)
    states = [torch.randn(2, 20, 1152, device="cuda")[n, :, :1150] for n in (0, 1)]
    values = [tokens[:, :-1], tokens[:, 1:], *states]
    places = [torch.zeros_like(value, memory_format=torch.contiguous_format) for value in values]
    copy_all(values, places)
    assert launched == [1]
    assert all(map(torch.equal, places, values))
