"""Language modelling: predict the next token of a text, over continuous streams.

    x_t = token_t, target_t = token_{t+1};  B parallel streams, T = tokens_per_sample per batch

Each batch starts from the final state of the previous one; with `--reset-state` every segment starts from zero
instead, also in evaluation. Without a data folder the built-in grammar generates the text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..config import setting
from .base import Batch, check_splits, register_task
from .text import TextTask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..data import LMBatch, LMStreams
    from ..data.batching import Tokens

LOGITS, ROWS = 1 << 24, 2048
"""The most logits (64 MB in float32) and steps of streams in one call of an evaluation."""


@dataclass(frozen=True)
class LanguageModelingConfig:
    """language modelling task"""

    data: str = setting("", "folder written by tsm-preprocess; none: the built-in generated corpus")
    batch_size: int = setting(32, "streams per update, over all processes")
    tokens_per_sample: int = setting(70, "steps of truncated back-propagation", "--bptt")
    random_bptt: bool = setting(
        False, "AWD: random lengths around --tokens-per-sample, with a matching learning rate"
    )
    reset_state: bool = setting(False, "start every segment from a zero state")
    valid_batch_size: int = setting(10, "parallel streams in validation")
    test_batch_size: int = setting(1, "parallel streams in the test")
    seed: int = setting(1, "seed of the random lengths")
    data_seed: int = setting(1, "seed of the generated corpus")
    generated_tokens: int = setting(300_000, "training tokens of the generated corpus")

    def __post_init__(self) -> None:
        for name in ("batch_size", "tokens_per_sample", "valid_batch_size", "test_batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: 1 or more")
        if self.generated_tokens < 1000:
            raise ValueError(f"generated_tokens is {self.generated_tokens}; accepted: 1000 or more")


@register_task("language_modeling")
class LanguageModelingTask(TextTask):
    """Next token."""

    Config = LanguageModelingConfig
    family = "lm"

    def __init__(self, config: LanguageModelingConfig, rank: int = 0, world: int = 1) -> None:
        from ..data import FixedLength, LMStreams, RandomLength

        super().__init__(config, rank, world)
        self.stateful = not config.reset_state  # type: ignore[misc]
        self.resident = False
        self._rows: dict[str, Tensor] = {}  # [B, n] for each split kept on the device
        self.splits = self._open() if config.data else self._generate()
        bptt = config.tokens_per_sample
        rule: Any = RandomLength(bptt, config.seed) if config.random_bptt else FixedLength(bptt)
        self.streams = LMStreams(self.splits["train"], config.batch_size, rule, rank, world)

    def _open(self) -> dict[str, Tokens]:
        folder = self.open_folder("language_modeling")
        check_splits(self.config.data, folder.meta.splits)
        return {split: folder.corpus(split) for split in folder.meta.splits}

    def _generate(self) -> dict[str, Tokens]:
        import numpy as np

        from ..data import TokenArray, Vocab
        from ..data.grammar import grammar_corpus

        size = self.config.generated_tokens
        corpus = grammar_corpus(self.config.data_seed, size, size // 10, size // 10)
        words = corpus.vocabulary
        counts = np.bincount(corpus.train.tokens, minlength=len(words))
        self.vocab = Vocab(words, counts.tolist())
        self.dataset = "generated"
        self.floor = corpus.valid.floor
        texts = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test}
        return {name: TokenArray(text.tokens, len(words)) for name, text in texts.items()}

    def model_arguments(self) -> dict[str, Any]:
        return {"vocab_size": len(self.vocab)}

    def batches_per_epoch(self, epoch: int) -> int:
        self.streams.set_epoch(epoch)
        return self.streams.batches_left()

    def train_batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        if epoch < 1 or start < 0:
            raise ValueError(
                f"epoch is {epoch} and start {start}; accepted: 1 or more and 0 or more"
            )
        streams = self.streams
        streams.set_epoch(epoch)
        done = sum(streams.segments.length(epoch, index) for index in range(start))
        streams.position, streams.index = min(done, streams.stream_length - 1), start
        yield from self._cut(streams, "train")

    def _cut(self, streams: LMStreams, split: str) -> Iterator[Batch]:
        """The rest of the streams, batch by batch."""
        import numpy as np
        import torch

        from ..data import batching

        if not (self.resident and streams.nbytes <= batching.KEPT_BYTES):
            for batch in streams:
                yield _tensors(batch)
            return
        if split not in self._rows:  # the batch size of a split never changes
            rows = streams.read(0, streams.stream_length).astype(np.int32)
            self._rows[split] = torch.from_numpy(rows).to(self.device)
        while not streams.finished:
            start, length = streams.next_segment()
            both = self._rows[split][:, start : start + length + 1].long()
            yield Batch(both[:, :-1], both[:, 1:], lr_scale=streams.segments.scale(length))

    def keep_on(self, device: torch.device) -> None:
        """Keeps all streams on the device, so that a batch is a slice of them, unless a split is too large."""
        super().keep_on(device)
        self.resident = True

    def eval_batches(self, split: str) -> Iterator[Batch]:
        from ..data import FixedLength, LMStreams

        if split not in ("valid", "test") or split not in self.splits:
            there = [name for name in ("valid", "test") if name in self.splits]
            raise ValueError(f"split is {split!r}; accepted: {', '.join(there)}")
        size: int = getattr(self.config, f"{split}_batch_size")
        rank, world = self.rank, self.world
        if size % world:  # rank 0 evaluates the whole split
            if rank:
                return
            rank, world = 0, 1
        segments: Any = FixedLength(eval_steps(self.config, size, len(self.vocab)))
        yield from self._cut(LMStreams(self.splits[split], size, segments, rank, world), split)

    def summary(self) -> str:
        sizes = ", ".join(f"{len(tokens):,} {split}" for split, tokens in self.splits.items())
        if self.config.data:
            return f"{self.dataset}: {sizes} tokens, {len(self.vocab):,} types"
        return (
            f"no data folder was given: training on the built-in generated corpus ({sizes} words, "
            f"{len(self.vocab)} types, data seed {self.config.data_seed}; no model gets below a validation "
            f"perplexity of {self.floor:.2f})"
        )


def eval_steps(config: LanguageModelingConfig, streams: int, vocab_size: int) -> int:
    """The steps per call in evaluation: those of training, or more (for fewer calls) if the carried state makes
    the result the same."""
    if config.reset_state:
        return config.tokens_per_sample
    return max(config.tokens_per_sample, min(LOGITS // vocab_size, ROWS) // streams)


def _tensors(batch: LMBatch) -> Batch:
    import torch

    return Batch(torch.from_numpy(batch.x), torch.from_numpy(batch.y), lr_scale=batch.lr_scale)
