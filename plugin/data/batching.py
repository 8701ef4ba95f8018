"""Batches for stateful truncated back-propagation: B streams run through the corpus in parallel, without jumps.

With N tokens and a global batch of B rows, stream b is tokens[b n : (b + 1) n], n = N // B (the last N - B
n tokens are left out). A batch is

    x[b, t] = stream_b[p + t],  y[b, t] = stream_b[p + t + 1],  t < T

and the next one starts at p + T, so the carried state remains valid. Rank r of W holds streams r B / W to (r +
1) B / W - 1, so the concatenated batches of all ranks equal the batch of a single process. A position is three
numbers, which are the same on all ranks and for any W. The first token of a stream is never a target: with B =
1 every token but the first is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from ..common.lazy import np
from .segments import Segments

KEPT_BYTES = 2 << 30  # larger splits are read on demand


class Tokens(Protocol):
    """The tokens of a split: a Corpus or a TokenArray."""

    vocab_size: int

    def __len__(self) -> int: ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop-1 as int64."""
        ...


@dataclass(frozen=True)
class LMBatch:
    """x, y: int64 [B / W, T]."""

    x: np.ndarray
    y: np.ndarray
    lr_scale: float  # T / bptt with random lengths, else 1
    epoch: int
    index: int  # number of the segment in its epoch
    start: int  # position in each stream; at 0 the state must be reset
    global_targets: int  # B T, over all ranks


class LMStreams:
    """`for batch in streams` runs to the end of the epoch; then call set_epoch(e)."""

    def __init__(
        self,
        tokens: Tokens,
        batch_size: int,
        segments: Segments,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(
                f"rank is {rank} of world size {world_size}; accepted: 0 to {world_size - 1}"
            )
        if batch_size < 1 or batch_size % world_size:
            raise ValueError(
                f"batch size is {batch_size}; accepted: a multiple of the {world_size} processes"
            )
        self.stream_length = len(tokens) // batch_size
        if self.stream_length < 2:
            raise ValueError(
                f"{len(tokens)} tokens are too few for batch size {batch_size}; "
                "accepted: 2 tokens per stream"
            )
        self.tokens = tokens
        self.batch_size = batch_size
        self.segments = segments
        share = batch_size // world_size
        self.starts = [b * self.stream_length for b in range(rank * share, (rank + 1) * share)]
        self.epoch = self.position = self.index = 0

    @property
    def finished(self) -> bool:
        """Whether this epoch is over."""
        return self.position >= self.stream_length - 1

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch. Random segment lengths depend on the epoch's number."""
        if epoch < 0:
            raise ValueError(f"epoch is {epoch}; accepted: 0 or more")
        self.epoch, self.position, self.index = epoch, 0, 0

    def __iter__(self) -> Iterator[LMBatch]:
        while not self.finished:
            yield self.next_batch()

    def next_batch(self) -> LMBatch:
        """The next batch. The position moves past it, so a resumed run continues with the next one."""
        epoch, index = self.epoch, self.index
        start, length = self.next_segment()
        rows = self.read(start, start + length + 1)
        return LMBatch(
            x=np.ascontiguousarray(rows[:, :-1]),
            y=np.ascontiguousarray(rows[:, 1:]),
            lr_scale=self.segments.scale(length),
            epoch=epoch,
            index=index,
            start=start,
            global_targets=self.batch_size * length,
        )

    def next_segment(self) -> tuple[int, int]:
        """Returns the position of the next batch in each stream and its length, and moves past it."""
        if self.finished:
            raise ValueError(
                f"epoch {self.epoch} is over; set_epoch({self.epoch + 1}) starts the next"
            )
        start = self.position
        length = min(self.segments.length(self.epoch, self.index), self.stream_length - 1 - start)
        self.position += length
        self.index += 1
        return start, length

    @property
    def nbytes(self) -> int:
        """The size in bytes of all streams as int32."""
        return 4 * len(self.starts) * self.stream_length

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens start..stop-1 of every stream, int64 [B / W, stop - start]."""
        return np.stack([self.tokens.read(s + start, s + stop) for s in self.starts])

    def batches_left(self) -> int:
        """How many batches this epoch still has."""
        position, index = self.position, self.index
        while position < self.stream_length - 1:
            position += self.segments.length(self.epoch, index)
            index += 1
        return index - self.index

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {
            "epoch": self.epoch,
            "position": self.position,
            "index": self.index,
            "tokens": len(self.tokens),
            "batch_size": self.batch_size,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of a state_dict(). Different data or a different global batch size is an error."""
        for name, here in (("tokens", len(self.tokens)), ("batch_size", self.batch_size)):
            if state.get(name) != here:
                raise ValueError(
                    f"data position: {name} is {state.get(name)!r} in the checkpoint and {here} "
                    "here"
                )
        values = [state.get(n) for n in ("epoch", "position", "index")]
        if (
            not all(type(v) is int and v >= 0 for v in values)
            or state["position"] > self.stream_length - 1
        ):
            raise ValueError(
                f"data position: epoch, position, index are {values}; "
                f"the streams have {self.stream_length} tokens"
            )
        self.epoch, self.position, self.index = state["epoch"], state["position"], state["index"]
