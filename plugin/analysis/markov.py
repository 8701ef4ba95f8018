"""A text resampled from its own bigrams: only the statistics of adjacent tokens are kept.

`data/datasets/markov.py` does the resampling. Structure over longer distances is visible in the mutual
information of tokens d apart (Lin and Tegmark 2017). In a Markov chain, mutual information decays
exponentially. Mahto et al. 2021 train a model on such a text (here the dataset `ptb-markov`) to show that its
units need only one timescale.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..common import style
from ..common.checks import check_least
from ..config import setting
from ..data.batching import Tokens
from ..data.datasets.markov import resample
from .findings.base import Finding, Row, register_analysis
from .needs import TEXT
from .probes.mutual_information import excess_information
from .probes.subject import Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANEL = (2.7, 2.4)

DISTANCES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)
FAR = 8  # tokens: the distance named in the text
SHOWN = 200_000  # tokens used to estimate the mutual information


@dataclass(frozen=True)
class MarkovSettings:
    """settings of the resampling"""

    tokens: int = setting(
        1_000_000, "maximum number of tokens of the resampled training text; 0: no limit"
    )
    write_text: bool = setting(
        False, "also write one text per split (markov.train.txt, ...) for tsm-preprocess"
    )


def read_all(tokens: Tokens) -> np.ndarray:
    return np.asarray(tokens.read(0, len(tokens)), dtype=np.int64)


def pair_counts(tokens: np.ndarray, vocab_size: int) -> dict[int, int]:
    """Maps the code a V + b of the bigram a b (V: vocab_size) to its count."""
    codes, counts = np.unique(tokens[:-1] * vocab_size + tokens[1:], return_counts=True)
    return dict(zip(codes.tolist(), counts.tolist(), strict=True))


@dataclass(frozen=True)
class Markov(Finding):
    """information: excess mutual information in bits at `distances`, for the text and for the resampled one.

    pairs [N,2]: how often the N most frequent bigrams occur in each text, per million.
    """

    label: str
    tokens: int
    resampled: int
    vocabulary: int
    distances: list[int]
    information: dict[str, np.ndarray]
    noise: float
    pairs: np.ndarray
    texts: dict[str, bytes] = field(repr=False)

    def numbers(self) -> dict:
        found = super().numbers()
        del found["texts"]
        return found

    def files(self) -> dict[str, bytes]:
        return self.texts

    def table(self) -> list[Row]:
        return [
            {"distance": d, "original_bits": a, "resampled_bits": b}
            for d, a, b in zip(
                self.distances,
                self.information["original"],
                self.information["resampled"],
                strict=True,
            )
        ]

    def text(self) -> str:
        far = max(i for i, d in enumerate(self.distances) if d <= FAR)
        a, b = self.information["original"], self.information["resampled"]
        there = self.pairs[(self.pairs > 0).all(axis=1)]
        ratio = np.log(there[:, 1] / there[:, 0]) if len(there) else np.zeros(1)
        return (
            f"{self.resampled:,} tokens resampled from the bigrams of {self.tokens:,}. Tokens next to "
            f"each other share {a[0]:.3f} bits in the text and {b[0]:.3f} in the resampled one, "
            f"tokens {self.distances[far]} apart {a[far]:.4f} and {b[far]:.4f} (noise of the estimate: "
            f"{self.noise:.1g}). The counts of the "
            f"{len(there)} most frequent bigrams that are in both differ by a factor of "
            f"{np.exp(np.sqrt(np.mean(ratio**2))):.3f} (root mean square)."
        )

    def draw(self, *others: Markov):
        return draw_markov(self)


@register_analysis(
    "markov",
    "The text resampled from its bigrams",
    "Mahto et al. 2021, section 3.2.1 (Markov-PTB)",
    needs=(TEXT,),
    settings=MarkovSettings,
    bare=True,
)
def markov(subject: Subject, settings: MarkovSettings) -> Markov:
    """Resamples the training text and measures mutual information by distance in both texts."""
    check_least(settings, 0, "tokens")
    train = read_all(subject.tokens("train"))
    count = min(len(train), settings.tokens or len(train))
    made = resample(train, count, subject.seed, "markov-train")
    vocab_size = len(subject.vocab)
    distances = [d for d in DISTANCES if d < min(len(train), len(made))]
    original, noise = excess_information(train[:SHOWN], distances, subject.seed)
    resampled, other = excess_information(made[:SHOWN], distances, subject.seed)
    texts = _texts(subject, train, made) if settings.write_text else {}
    return Markov(
        subject.label,
        len(train),
        len(made),
        vocab_size,
        distances,
        {"original": original, "resampled": resampled},
        max(noise, other),
        _frequent_pairs(train, made, vocab_size),
        texts,
    )


def _frequent_pairs(a: np.ndarray, b: np.ndarray, vocab_size: int, most: int = 500) -> np.ndarray:
    """Counts [N,2] per million, in a and in b, of the bigrams that are most frequent in a."""
    there, here = pair_counts(a, vocab_size), pair_counts(b, vocab_size)
    codes = sorted(there, key=lambda code: (-there[code], code))[:most]
    return np.array([[1e6 * there[c] / len(a), 1e6 * here.get(c, 0) / len(b)] for c in codes])


def _texts(subject: Subject, train: np.ndarray, made: np.ndarray) -> dict[str, bytes]:
    """Writes a new resampled text for every split, in the form that tsm-preprocess reads."""
    walks = {"train": made}
    for split in sorted(set(subject.splits) - {"train"}):
        count = len(subject.tokens(split))
        walks[split] = resample(train, count, subject.seed, f"markov-{split}")
    decode = subject.tokenizer.decode
    return {
        f"markov.{split}.txt": decode(walk, subject.vocab).encode() for split, walk in walks.items()
    }


def draw_markov(found: Markov) -> Figure:
    """Plots the counts of frequent bigrams in both texts, and mutual information against distance."""
    made, (pairs, information) = style.figure(2, PANEL, right=1.5, top=0.5, share=False)
    there = found.pairs[(found.pairs > 0).all(axis=1)]
    ends = [there.min() * 0.8, there.max() * 1.25] if len(there) else [1, 10]
    pairs.plot(ends, ends, color=style.FAINT, linewidth=0.9)
    pairs.plot(there[:, 0], there[:, 1], ".", color=style.KINDS[0], markersize=3, alpha=0.6)
    pairs.set(xscale="log", yscale="log")
    pairs.set_xlabel("bigrams in the text, per million", fontsize=9)
    pairs.set_ylabel("in the resampled text, per million", fontsize=9)
    for (name, values), color, dash in zip(
        found.information.items(), style.KINDS, style.DASHES, strict=False
    ):
        shown = np.where(values > found.noise, values, np.nan)
        information.plot(
            found.distances, shown, "o", linestyle=dash, color=color, markersize=3.5,
            linewidth=1.4, label=f"{name} text",
        )  # fmt: skip
    information.set(xscale="log", yscale="log")
    if found.noise > 0:
        style.level(information, found.noise, "noise of the estimate")
    information.set_xlim(0.9, found.distances[-1] * 1.1)
    information.set_xlabel("distance d, tokens", fontsize=9)
    information.set_ylabel("excess mutual information, bits", fontsize=9)
    style.legend_right(information)
    style.title(made, "a text resampled from its bigrams")
    return made
