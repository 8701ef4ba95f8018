"""torch.nn.LSTM on a GPU as a rival for streams: step by step, in a CUDA graph, in whole chunks."""

from __future__ import annotations

from typing import Any

from .turns import Loop

CHUNK = 256
GRAPH_STEPS = 8  # steps captured together, so that the state is copied only once


class NnLstm:
    """One layer with I = H for B streams, in bfloat16 or float32 (with matrix products in tf32)."""

    def __init__(self, B: int, H: int, dtype: str) -> None:
        import torch

        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        self.torch, kind = torch, getattr(torch, dtype)
        self.layer = torch.nn.LSTM(H, H, device="cuda", dtype=kind).eval()
        self.layer.flatten_parameters()
        self.step_in = torch.randn(1, B, H, device="cuda", dtype=kind)
        self.chunk_in = torch.randn(CHUNK, B, H, device="cuda", dtype=kind) if B <= 64 else None
        self.state = tuple(torch.zeros(1, B, H, device="cuda", dtype=kind) for _ in range(2))

    def _step(self, state: Any) -> Any:
        with self.torch.no_grad():
            return self.layer(self.step_in, state)[1]

    def _loop(self, call: Any) -> Loop:
        def run(times: int) -> None:
            for _ in range(times):
                call()
            self.torch.cuda.synchronize()

        return run

    def steps(self) -> Loop:
        """Makes one call per step; the state stays on the device."""
        now = [self.state]

        def call() -> None:
            now[0] = self._step(now[0])

        return self._loop(call)

    def graph(self) -> Loop:
        """A replay runs GRAPH_STEPS captured steps; the queue is kept full, so that only device time counts."""
        torch = self.torch

        def steps() -> None:
            state = self.state
            for _ in range(GRAPH_STEPS):
                state = self._step(state)
            for old, new in zip(self.state, state, strict=True):
                old.copy_(new)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            steps()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            steps()
        return self._loop(captured.replay)

    def chunks(self) -> Loop:
        """CHUNK steps a call."""

        def call() -> None:
            with self.torch.no_grad():
                self.layer(self.chunk_in, self.state)

        return self._loop(call)
