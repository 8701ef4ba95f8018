"""Data: text -> tokens -> binarized splits -> batches. Needs numpy, and sentencepiece only for --bpe
sentencepiece.

From the bottom up: files < vocab < tokenizers, subword < corpus, corpus_writer < datasets, readers < build; for
reading: checksums < data_dir < batching (language models), classification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy

if TYPE_CHECKING:
    from .batching import LMBatch, LMStreams
    from .classification import ClassificationBatch, ClassificationBatches
    from .corpus import Corpus, TokenArray
    from .corpus_writer import CorpusWriter
    from .data_dir import DataDir
    from .segments import FixedLength, RandomLength
    from .tokenizers import Tokenizer
    from .vocab import Vocab

__all__ = [
    "ClassificationBatch",
    "ClassificationBatches",
    "Corpus",
    "CorpusWriter",
    "DataDir",
    "FixedLength",
    "LMBatch",
    "LMStreams",
    "RandomLength",
    "TokenArray",
    "Tokenizer",
    "Vocab",
]

__getattr__ = lazy(
    __name__,
    {
        "ClassificationBatch": ".classification",
        "ClassificationBatches": ".classification",
        "Corpus": ".corpus",
        "CorpusWriter": ".corpus_writer",
        "DataDir": ".data_dir",
        "FixedLength": ".segments",
        "LMBatch": ".batching",
        "LMStreams": ".batching",
        "RandomLength": ".segments",
        "TokenArray": ".corpus",
        "Tokenizer": ".tokenizers",
        "Vocab": ".vocab",
    },
)
