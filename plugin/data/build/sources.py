"""The data sets of --dataset by name, and the user's own text files."""

from __future__ import annotations

from pathlib import Path

from ..datasets.common import TextSource, file_pieces
from ..datasets.markov import ptb_markov
from ..datasets.ptb import ptb, ptb_char, ptb_char_27, ptb_char_raw
from ..datasets.text8 import text8
from ..datasets.wikitext2 import wikitext2
from ..files import UTF8, Encoding, Entry
from ..meta import SPLITS
from ..tokenizers import Tokenizer
from .images import IMAGE_DATASETS

TEXT_DATASETS = {
    "ptb": ptb,
    "ptb-char": ptb_char,
    "ptb-char-raw": ptb_char_raw,
    "ptb-char-27": ptb_char_27,
    "ptb-markov": ptb_markov,
    "wikitext-2": wikitext2,
    "text8": text8,
}
DATASETS = (*TEXT_DATASETS, "imdb", *IMAGE_DATASETS)


def user_text(
    files: dict[str, Path], tokenizer: Tokenizer, encoding: Encoding = UTF8
) -> TextSource:
    """The user's own files, one per split (plain, .xz, .gz or .bz2)."""
    entries = {s: Entry(files[s]) for s in SPLITS if s in files}
    for split, entry in entries.items():
        if not entry.path.is_file():
            raise FileNotFoundError(
                f"--{split}pref {entry.path} does not exist; "
                "accepted: a text file (plain, .xz, .gz, .bz2)"
            )
    return TextSource(
        tokenizer,
        {s: file_pieces(e, tokenizer, encoding) for s, e in entries.items()},
        "the user's files",
        None,
        {s: e.name for s, e in entries.items()},
    )
