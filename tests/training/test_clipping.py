"""The norm of the gradients, their mean, and clipping them to a maximum norm."""

from __future__ import annotations

import math

import pytest
import torch

from tsm.plugin.train.clipping import divide_gradients

ONE = torch.ones((), dtype=torch.float64)


def with_gradients(scale):
    generator = torch.Generator().manual_seed(1)
    owners = [torch.nn.Parameter(torch.zeros(shape)) for shape in [(3, 4), (7,), (2, 2)]]
    for p in owners[:-1]:  # the last has no gradient
        p.grad = scale * torch.randn(p.shape, generator=generator)
    return owners


@pytest.mark.parametrize("limit", [0.5, 1e9, math.inf])
@pytest.mark.parametrize("count", [1.0, 7.0])
def test_as_torch_clips(limit, count):
    ours, theirs = with_gradients(1.0), with_gradients(1 / count)
    norm = divide_gradients(ours, count * ONE, limit)
    torch.testing.assert_close(norm.float(), torch.nn.utils.clip_grad_norm_(theirs, limit))
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("limit", [0.5, math.inf])
@pytest.mark.parametrize("first", [torch.float32, torch.float64])
def test_parameters_of_two_types(first, limit):
    pair = [torch.nn.Parameter(torch.zeros(1, dtype=t)) for t in (first, torch.float64)]
    for p, value in zip(pair, (3.0, 4.0), strict=True):
        p.grad = torch.full_like(p, value)
    assert divide_gradients(pair, ONE, limit).item() == pytest.approx(5)
    share = min(1.0, limit / 5)
    assert [p.grad.item() for p in pair] == pytest.approx([3 * share, 4 * share])


def test_squares_beyond_float32():
    owners, small = with_gradients(1e30), with_gradients(1.0)
    norm = divide_gradients(owners, ONE, 2.0)
    assert norm.item() == pytest.approx(1e30 * divide_gradients(small, ONE, 2.0).item(), rel=1e-6)
    for a, b in zip(owners[:-1], small[:-1], strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_without_a_limit_they_are_infinite():
    """Without a limit, gradients whose squares overflow must give an infinite norm; otherwise Adam would square
    them and never move these weights again."""
    assert divide_gradients(with_gradients(1e30), ONE).item() == math.inf


def test_an_infinite_gradient_is_not_hidden():
    owners = with_gradients(1.0)
    owners[0].grad[1, 1] = math.inf
    assert divide_gradients(owners, ONE, 1.0).item() == math.inf


def test_no_gradient_at_all():
    assert divide_gradients([torch.nn.Parameter(torch.zeros(2))], ONE, 1.0).item() == 0


@pytest.mark.parametrize("limit", [0.5, math.inf])
def test_a_count_of_0(limit):
    """Without targets, the gradients are 0, and stay so."""
    owners = with_gradients(0.0)
    assert divide_gradients(owners, 0 * ONE, limit).item() == 0
    assert not any(p.grad.any() for p in owners[:-1])
