"""Numbers and batches copied between host and device arrive unchanged."""

from __future__ import annotations

import pytest
import torch

from tsm.plugin.tasks.transfer import to_device
from tsm.plugin.train.copies import to_host

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_there_and_back(device):
    values = torch.arange(5, dtype=torch.float64) / 3
    there = to_device(values, torch.device(device))
    assert there.device.type == device
    assert to_host(there).values() == values.tolist()


@pytest.mark.gpu
def test_numbers_are_those_of_their_moment():
    numbers = torch.zeros(3, device="cuda")
    on_its_way = [to_host(numbers.add_(1).double()) for _ in range(50)]
    assert [found.values() for found in on_its_way] == [[float(i)] * 3 for i in range(1, 51)]
