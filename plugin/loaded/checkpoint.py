"""A checkpoint of tsm-train, in torch."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data import Tokenizer, Vocab
from ..generation import Sampling, generate
from ..train.objective import takes_dt
from ..trained import open_trained
from .model import Array, LoadedModel

BATCH = 64  # rows per batch
CHUNK = 1024  # steps of a text per call


class CheckpointModel(LoadedModel):
    """`model` is the module, in eval mode; `config` the settings of its training."""

    def __init__(self, path: Path, device: str) -> None:
        self.trained = open_trained(path, device)
        self.path, self.model = path, self.trained.model
        self.config = self.trained.config
        self.family = self.config["model"]["model"]
        self.labels, self.targets = self.trained.labels, self.trained.targets
        self.columns, self.reading = self.trained.columns, self.trained.reading
        self.ranges, self.roles = self.trained.ranges, self.trained.roles
        self.takes_dt = takes_dt(self.model)
        self.output_size = self.model.decoder.out_features
        self.device = torch.device(device)

    @cached_property
    def vocab(self) -> Vocab:
        return self.trained.vocab

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return self.trained.tokenizer

    @property
    def input_size(self) -> int | None:
        return None if self.model.embed is not None else self.model.layers[0].input_size

    def _generate(self, prompt: list[int], length: int, sampling: dict[str, Any]) -> list[int]:
        seed = sampling.pop("seed")
        return list(generate(self.model, prompt, length, Sampling(**sampling), seed))

    @torch.no_grad()
    def _log_probs(self, before: int, tokens: list[int]) -> Array:
        fed, state, found = [before, *tokens[:-1]], None, []
        for start in range(0, len(fed), CHUNK):
            x = torch.tensor([fed[start : start + CHUNK]], device=self.device)
            logits, state = self.model(x, state=state)
            wanted = torch.tensor(tokens[start : start + CHUNK], device=self.device)
            scores = logits[0].double().log_softmax(-1)
            found.append(scores.gather(1, wanted[:, None])[:, 0].cpu().numpy())
        return np.concatenate(found)

    @torch.no_grad()
    def run(self, rows: list[Array], dts: list[Array] | None) -> list[Array]:
        found: list[Array] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            lengths = torch.tensor([len(row) for row in batch])
            x = self._padded(batch)
            dt = None
            if dts is not None:
                times = _stacked(dts[start : start + BATCH], x.shape[1], 1.0)
                dt = torch.from_numpy(times).to(self.device)
            logits, _ = self.model(x, lengths.to(self.device), dt=dt)
            outputs = logits.double().cpu().numpy()
            one_each = self.family == "classifier"
            found += [o if one_each else o[:n] for o, n in zip(outputs, lengths, strict=True)]
        return found

    def _padded(self, rows: list[Array]) -> torch.Tensor:
        """The padded batch [B,T] or [B,T,I]. A model that reads through the padding gets as much of it as in
        training."""
        steps = self._filled(max(map(len, rows)))
        # Text is padded with the id that follows the dictionary's last one.
        padding = 0 if self.model.embed is None else self.model.embed.vocab_size - 1
        return torch.from_numpy(_stacked(rows, steps, padding)).to(self.device)


def _stacked(rows: list[Array], steps: int, padding: float) -> Array:
    whole = np.full((len(rows), steps, *rows[0].shape[1:]), padding, rows[0].dtype)
    for number, row in enumerate(rows):
        whole[number, : len(row)] = row
    return whole
