"""Baselines for character models: bits per character of two methods that know nothing about words.

    unigram   -mean log2 (n_c + 1) / (N + V), n_c = count of the character in the training data
    xz        8 x compressed bytes / characters of the split's own text (UTF-8, as by `xz -9e`)

xz only sees the split, not the training data. <unk> is written as U+FFFD.
"""

from __future__ import annotations

import lzma

import numpy as np

from ..data import Vocab
from ..data.batching import Tokens
from ..data.vocab import UNK

BLOCK = 1 << 20  # tokens in memory at once


def unigram_bits(vocab: Vocab, tokens: Tokens) -> float:
    """Mean bits of all tokens but the first, as for a model."""
    counts = vocab.counts.astype(np.float64) + 1
    bits = -np.log2(counts / counts.sum())
    total = sum(
        float(bits[tokens.read(start, min(start + BLOCK, len(tokens)))].sum())
        for start in range(1, len(tokens), BLOCK)
    )
    return total / (len(tokens) - 1)


def xz_bits(vocab: Vocab, tokens: Tokens) -> float:
    """Bits of the compressed text per character."""
    table = np.array(["\ufffd" if s == UNK else s for s in vocab.symbols], dtype=object)
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME)
    size = 0
    for start in range(0, len(tokens), BLOCK):
        ids = tokens.read(start, min(start + BLOCK, len(tokens)))
        size += len(packer.compress("".join(table[ids].tolist()).encode()))
    return 8 * (size + len(packer.flush())) / len(tokens)
