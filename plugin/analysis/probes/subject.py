"""The subject of an analysis: a trained model with data for its task.

Most analyses inspect the model on one sample of the split, in float64 and step by step. The sample, the inputs
of each layer on it, and the forget factors are computed once, on first use.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...data import DataDir, FixedLength, LMStreams, Tokenizer, Vocab
from ...data.batching import Tokens
from ...evaluation.eval_task import data_of_training, open_task
from ...layers import Recurrent
from ...models.sequence_model import SequenceModel
from ...tasks import Task
from ...tasks.base import Batch
from ...tasks.language_modeling import LanguageModelingTask
from ...train.objective import place, takes_dt
from ...trained import Trained
from .decay import forget_factors
from .layer_calls import LayerCall, layer_calls
from .spread import Sample, one_sample, spread

STREAMS = 8  # number of parallel streams read from a text


class Subject:
    """A model (None if none is needed) and its data. data: a folder; None means the training data.

    steps: how many steps of the split are computed in float64 (rows times length).
    rows: how many sequences are evaluated in each ablation; for text, pieces of `tokens_per_sample` tokens.
    run: checkpoints of one training run, first to last.
    """

    def __init__(
        self,
        trained: Trained | None,
        data: str | None = None,
        split: str = "test",
        device: torch.device | str = "cpu",
        steps: int = 4000,
        rows: int = 128,
        seed: int = 0,
        run: Sequence[Path] = (),
        label: str | None = None,
    ) -> None:
        self.maybe_trained = trained
        self.data = data
        self.split = split
        self.device = torch.device(device)
        self.steps, self.rows, self.seed = steps, rows, seed
        self.run = list(run)
        self._label = label

    @property
    def trained(self) -> Trained:
        if self.maybe_trained is None:
            raise ValueError("no checkpoint was given; this analysis needs one")
        return self.maybe_trained

    @property
    def model(self) -> SequenceModel:
        return self.trained.model

    @property
    def layers(self) -> Sequence[Recurrent]:
        return self.model.layers

    @property
    def cell(self) -> Any:
        return self.layers[0].cell

    @property
    def kind(self) -> str:
        """The name used in messages: that of the cell, or "no model"."""
        return "no model" if self.maybe_trained is None else self.cell.name

    @property
    def label(self) -> str:
        if self._label is not None:
            return self._label
        return "" if self.maybe_trained is None else str(self.trained.config["model"]["arch"])

    @property
    def task_name(self) -> str:
        return str(self.trained.config["task"]["name"])

    @property
    def data_folder(self) -> str:
        """The given data folder, or the one used in training; "" for generated data."""
        if self.data is not None or self.maybe_trained is None:
            return self.data or ""
        return data_of_training(self.trained, " with --data")

    @cached_property
    def folder(self) -> DataDir:
        """The preprocessed folder, for analyses without a model."""
        return DataDir(self.data_folder)

    @cached_property
    def task(self) -> Task:
        """The task that the model was trained on, with the given data."""
        return open_task(self.trained, self.data_folder, None)

    @cached_property
    def _split(self) -> list[Batch]:
        """All batches of a split that is not a single text."""
        found = list(self.task.eval_batches(self.split))
        if not found:
            raise ValueError(f"the {self.split} split is empty")
        return found

    def batches(self) -> Iterator[Batch]:
        """At most `rows` sequences from all over the split, or consecutive pieces of a text."""
        dt = takes_dt(self.model)
        if not isinstance(self.task, LanguageModelingTask):
            for batch in spread(self._split, self.rows):
                yield place(batch, self.device, dt)
            return
        streams = min(STREAMS, self.rows)
        pieces = self._streams(streams, self.task.config.tokens_per_sample)
        for batch in itertools.islice(pieces, self.rows // streams):
            yield place(batch, self.device, dt)

    @cached_property
    def sample(self) -> Sample:
        """A sample of at most `steps` steps (but at least one row): streams of a text, or rows of the split."""
        if isinstance(self.task, LanguageModelingTask):
            streams = min(STREAMS, self.steps)
            batches = [next(self._streams(streams, self.steps // streams))]
        else:
            longest = max(batch.x.shape[1] for batch in self._split)
            batches = spread(self._split, max(1, self.steps // longest))
        dt = takes_dt(self.model)
        return one_sample([place(batch, self.device, dt) for batch in batches])

    def _streams(self, streams: int, length: int) -> Iterator[Batch]:
        tokens = self.tokens(self.split)
        streams = max(1, min(streams, len(tokens) // 2))
        for batch in LMStreams(tokens, streams, FixedLength(length)):
            yield Batch(torch.from_numpy(batch.x), torch.from_numpy(batch.y))

    @property
    def splits(self) -> list[str]:
        """The splits of the text."""
        if self.maybe_trained is None:
            return list(self.folder.meta.splits)
        assert isinstance(self.task, LanguageModelingTask)
        return list(self.task.splits)

    def tokens(self, split: str) -> Tokens:
        """A split of the text."""
        if split not in self.splits:
            raise ValueError(f"split is {split!r}; accepted: {', '.join(self.splits)}")
        if self.maybe_trained is None:
            return self.folder.corpus(split)
        assert isinstance(self.task, LanguageModelingTask)
        return self.task.splits[split]

    @property
    def vocab(self) -> Vocab:
        """The dictionary of the text."""
        return self.folder.vocab if self.maybe_trained is None else self.trained.vocab

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the text."""
        return self.folder.tokenizer if self.maybe_trained is None else self.trained.tokenizer

    @cached_property
    def calls(self) -> list[LayerCall]:
        """The inputs of each layer on the sample."""
        s = self.sample
        return layer_calls(self.model, s.x, s.lengths, None, s.dt)

    @cached_property
    def valid(self) -> np.ndarray:
        """bool [B,T]: which steps of the sample are not padding."""
        rows, width = self.sample.x.shape[:2]
        if self.sample.lengths is None:
            return np.ones((rows, width), dtype=bool)
        return np.arange(width) < self.sample.lengths.cpu().numpy()[:, None]

    @cached_property
    def factors(self) -> list[np.ndarray]:
        """Forget factors [B,T,H] of each layer on the sample."""
        return [forget_factors(call.layer, call.x, call.state, call.dt) for call in self.calls]
