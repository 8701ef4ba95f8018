"""Data parallelism: every rank computes its rows of the same batch.

    gradient = sum over ranks of d(sum of losses) / sum over ranks of counts

so the update equals that of one process with the whole batch, up to rounding. `torchrun` sets the environment.
Without `torchrun` there is one process and no communication.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..common.device import choose_device

T = TypeVar("T")
State = list[dict[str, Tensor]]


@dataclass(frozen=True)
class World:
    """Process `rank` of `size`, computing on `device`."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def add_up(self, numbers: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.size > 1:
            dist.all_reduce(numbers)
        return numbers

    def share_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sets the gradients on every rank to the sum over ranks."""
        trained = list(parameters)
        for p in trained:
            if p.grad is None:  # this rank has no rows in this batch
                p.grad = torch.zeros_like(p)
        if self.size == 1:
            return
        gradients = [p.grad for p in trained if p.grad is not None]
        flat = torch.cat([g.reshape(-1) for g in gradients])
        dist.all_reduce(flat)
        parts = flat.split([g.numel() for g in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def same_start(self, model: nn.Module) -> None:
        """Broadcast the weights and buffers of rank 0."""
        if self.size > 1:
            for value in model.state_dict().values():
                dist.broadcast(value, 0)

    def gather(self, value: T) -> list[T]:
        """Gathers the values of all ranks on every rank, in rank order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def from_first(self, value: T) -> T:
        """Rank 0's value on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0)
        return box[0]


def stack_rows(states: Sequence[State | None]) -> State | None:
    """The carried state of the global batch: the states of all ranks, concatenated."""
    there = [state for state in states if state is not None]
    if not there:
        return None
    return [
        {name: torch.cat([state[layer][name] for state in there]) for name in there[0][layer]}
        for layer in range(len(there[0]))
    ]


def share_rows(state: State | None, world: World) -> State | None:
    """This rank's rows of the global batch's state, however many ranks saved it."""
    if state is None:
        return None
    rows = next(iter(state[0].values())).shape[0]
    mine = slice(rows * world.rank // world.size, rows * (world.rank + 1) // world.size)
    return [{k: v[mine].to(world.device) for k, v in layer.items()} for layer in state]


@contextmanager
def join_world(cpu: bool = False, device: str = "") -> Iterator[World]:
    """The world of this process: a single process, or those started by torchrun."""
    several = "WORLD_SIZE" in os.environ and "RANK" in os.environ
    found = choose_device(device, cpu, int(os.environ.get("LOCAL_RANK", 0)) if several else None)
    use_gpu = found.type == "cuda"
    if use_gpu:
        torch.cuda.set_device(found)
    if not several:
        yield World(found)
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if use_gpu else "gloo")
    try:
        yield World(found, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
