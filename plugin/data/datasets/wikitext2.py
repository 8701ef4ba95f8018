"""WikiText-2 (tokens, not raw): one <eos> per line, including empty lines; 2,088,628 / 217,646 / 245,569
tokens, 33,278 types."""

from __future__ import annotations

from pathlib import Path

from ..files import find, require
from ..meta import SPLITS
from ..tokenizers import WordTokenizer
from .common import TextSource, file_pieces

WORDS = {
    "train": {"lines": 36_718, "words": 2_088_628},
    "valid": {"lines": 3_760, "words": 217_646},
    "test": {"lines": 4_358, "words": 245_569},
}


def wikitext2(root: Path) -> TextSource:
    """Word level (with --bpe sentencepiece: its pieces)."""
    if (
        find(root, ("wiki.train.tokens", "train.txt")) is None
        and find(root, ("wiki.train.raw",)) is not None
    ):
        raise ValueError(
            f"{root} holds the raw WikiText-2 (wiki.train.raw); "
            "accepted: wiki.train.tokens (wikitext-2-v1)"
        )
    entries = {
        s: require(root, (f"wiki.{s}.tokens", f"{s}.txt"), f"WikiText-2 {s} split") for s in SPLITS
    }
    tokenizer = WordTokenizer()
    return TextSource(
        tokenizer,
        {s: file_pieces(e, tokenizer) for s, e in entries.items()},
        "the official three files",
        "wikitext-2",
        {s: e.name for s, e in entries.items()},
        WORDS,
        33_278,
    )
