"""Perplexity of frequent and of rare words with bootstrap intervals (Mahto et al. 2021, table 1).

evaluation/frequency_bins.py computes the numbers over the whole split, as in tsm-eval.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..common.checks import check_least
from ..config import setting
from ..evaluation.eval_text import default_batch_size, default_steps, task_config
from ..evaluation.frequency_bins import SAMPLES, FrequencyBins
from ..evaluation.score import score_tokens
from .findings.base import register_analysis
from .findings.binned import Bin, Binned
from .needs import LANGUAGE_MODEL
from .probes.subject import Subject


@dataclass(frozen=True)
class BinSettings:
    """settings of the frequency bins"""

    samples: int = setting(SAMPLES, "bootstrap samples")
    streams: int = setting(
        0, "number of streams that the split is cut into; 0: as in tsm-eval (test: 1)"
    )


@dataclass(frozen=True)
class BinPerplexity(Binned):
    """One bin for each range of training counts, and one for all words."""

    quantity = "perplexity"
    by = "count in the training data"
    counted = "scored tokens"
    title = "perplexity by training frequency"
    log = True


@register_analysis(
    "frequency-bins",
    "Perplexity by training frequency",
    "Mahto et al. 2021, table 1",
    needs=(LANGUAGE_MODEL,),
    settings=BinSettings,
    several=True,
)
def bin_perplexity(subject: Subject, settings: BinSettings) -> BinPerplexity:
    """Scores the whole split, carrying the state as in training."""
    check_least(settings, 1, "samples")
    check_least(settings, 0, "streams")
    config, tokens = task_config(subject.trained), subject.tokens(subject.split)
    batch = settings.streams or default_batch_size(config, subject.split)
    steps = default_steps(config, batch, len(subject.vocab))
    bins = FrequencyBins(subject.vocab.counts, batch, max(len(tokens) // batch - 1, 0))
    for scores in score_tokens(
        subject.model, tokens, batch, steps, not config.reset_state, subject.device
    ):
        bins.add(*scores)
    rows = bins.table(settings.samples, subject.seed)
    return BinPerplexity(
        subject.label, [Bin(r.label, r.words, r.perplexity, r.low, r.high) for r in rows]
    )
