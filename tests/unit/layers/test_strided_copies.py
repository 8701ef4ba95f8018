"""Copies that are collected and run in one launch on a GPU."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tsm.plugin.layers.gpu import current_stream
from tsm.plugin.layers.sketch import Sketch

pytestmark = pytest.mark.gpu

BOTH = (torch.float32, torch.bfloat16)


class Copies(Sketch):
    """Copies between real tensors."""

    def __init__(self) -> None:
        super().__init__(0)
        self.tensors: list[torch.Tensor] = []

    def add(self, *tensors: torch.Tensor, fill: float = 0.0, scale: float = 1.0) -> None:
        """tensors: to, source, mask; at most 32 in a launch."""
        self.tensors += tensors
        to, *rest = (self.array(t.dtype, t.shape, t.stride()) for t in tensors)
        source, mask = (*rest, None, None)[:2]
        self.copy(to, source, fill, mask, scale)

    def run(self) -> None:
        self.run_copies()
        addresses = tuple(t.data_ptr() for t in self.tensors)
        self.launches.run(addresses, current_stream(torch.device("cuda", 0)))


def test_all_at_once():
    """Copies between two dtypes in both directions, with 1 to 3 dimensions, strides, and a fill value outside
    the source."""
    copies, expected = Copies(), []
    for source_dtype in BOTH:
        for dtype in BOTH:
            for shape in [(5,), (3, 7), (2, 3, 9), (2, 611)]:
                source = torch.randn(*shape, 2, device="cuda").to(source_dtype)[..., 1]
                room = torch.full((*shape[:-1], 2 * shape[-1] + 4), 7.0, device="cuda", dtype=dtype)
                to = room[..., 1 : shape[-1] + 3]
                copies.add(to, source, fill=-1.0)
                want = room.clone()
                want[..., 1 : shape[-1] + 3] = -1.0
                want[..., 1 : shape[-1] + 1] = source.to(dtype)
                expected.append((room, want))
    copies.run()
    assert all(torch.equal(found, want) for found, want in expected)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("source_dtype", BOTH)
@pytest.mark.parametrize("more", (0, 1, 2, 4))
@pytest.mark.parametrize("width", (8, 27, 1150, 1152))
def test_items_of_several_numbers(width, more, source_dtype, dtype):
    """Numbers go by 1, 2 or 4, as widths, offsets and lengths of rows allow."""
    copies, expected = Copies(), []
    for before, left in product((0, 1, 2), (0, 1, 2)):
        source = torch.randn(3, 10, before + width, device="cuda").to(source_dtype)[..., before:]
        room = torch.full((4, 11, left + width + more + 8), 7.0, device="cuda", dtype=dtype)
        want = room.clone()
        want[..., left : left + width + more] = 0.3
        want[:3, :10, left : left + width] = source.to(dtype)
        copies.add(room[..., left : left + width + more], source, fill=0.3)
        expected.append((room, want))
    copies.run()
    assert all(torch.equal(found, want) for found, want in expected)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("source_dtype", BOTH)
@pytest.mark.parametrize("width", (8, 27, 1150, 1152))
def test_masks(width, source_dtype, dtype):
    """They begin at any byte, have any strides, or are broadcast. A copy without one is in the same launch."""
    copies, expected, scale = Copies(), [], 1 / 0.7
    for before, shape in product((0, 1, 2), ((3, 10, width), (3, 1, width), (1, 10, 1))):
        source = torch.randn(3, 10, width, device="cuda").to(source_dtype)
        drawn = torch.rand(*shape[:2], before + shape[2], device="cuda") < 0.7
        mask = drawn[..., before:]
        room = torch.full((4, 11, width + 4), 7.0, device="cuda", dtype=dtype)
        want = torch.full_like(room, 0.3)
        want[:3, :10, :width] = source.float() * mask * scale
        copies.add(room, source, mask, fill=0.3, scale=scale)
        expected.append((room, want))
    plain = torch.randn(3, 5, width, device="cuda").to(source_dtype)
    expected.append((torch.zeros_like(plain), plain))
    copies.add(*expected[-1])
    copies.run()
    assert all(torch.equal(found, want) for found, want in expected)


def test_fills_alone():
    to = torch.zeros(4, 3, device="cuda")
    ones = torch.zeros(6, device="cuda").bfloat16()
    copies = Copies()
    copies.add(to, torch.arange(12.0, device="cuda").reshape(4, 3))
    copies.add(ones, fill=1.0)
    copies.run()
    assert torch.equal(to.flatten(), torch.arange(12.0, device="cuda"))
    assert torch.equal(ones, torch.ones_like(ones))


def test_nothing_to_copy():
    copies = Copies()
    copies.run()
    copies.add(torch.empty(0, 3, device="cuda"))
    copies.run()


def test_a_source_that_is_too_large():
    copies = Copies()
    copies.add(torch.empty(3, device="cuda"), torch.empty(4, device="cuda"))
    with pytest.raises(Exception, match="larger"):
        copies.run()
