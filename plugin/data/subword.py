"""sentencepiece: learns pieces from the training text and splits any text into them without loss or <unk>.

The model does not normalise the text, keeps spaces and falls back to bytes. So decode(encode_line(s)) == s for
every line without U+2581, the character that sentencepiece uses for a space. Ids 0 and 1 are <unk> (never used
for text) and <eos>; --vocab-size counts them and the 256 bytes. The model file is stored next to dict.txt.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from ..common.lazy import np
from ..extras import how_to_install
from .tokenizers import Encoded, Tokenizer
from .vocab import EOS, UNK, Vocab

MODEL = "sentencepiece.model"
MAX_MODEL = 1 << 28  # bytes
MODEL_TYPES = ("unigram", "bpe")
TRAIN_LINES = 1_000_000  # a sample of this many lines is enough to learn pieces, and limits memory
CUT = 1_000  # characters: longer lines are cut for training only (sentencepiece would skip them)
THREADS = 4  # fixed, because the floating-point sums, and so the pieces, depend on it


class MissingPackage(ImportError):
    """A required package is not installed."""


def _sentencepiece() -> Any:
    try:
        import sentencepiece
    except ImportError as e:
        needs = how_to_install("train")
        raise MissingPackage(f"sentencepiece is not installed; run: {needs}") from e
    return sentencepiece


def train_sentencepiece(
    lines: Iterable[str], vocab_size: int, model_type: str = "unigram", seed: int = 0
) -> bytes:
    """Learns vocab_size pieces from lines; returns the bytes of the model."""
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f"sentencepiece type is {model_type!r}; accepted: {', '.join(MODEL_TYPES)}"
        )
    if not 260 <= vocab_size <= 1_000_000:
        raise ValueError(
            f"--vocab-size is {vocab_size}; accepted: 260 (it includes 256 bytes) to 1,000,000"
        )
    spm = _sentencepiece()
    spm.set_random_generator_seed(seed % 2**32)
    out = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=_cut(lines),
            model_writer=out,
            vocab_size=vocab_size,
            model_type=model_type,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
            character_coverage=0.9999,
            unk_id=0,
            unk_piece=UNK,
            eos_id=1,
            eos_piece=EOS,
            bos_id=-1,
            pad_id=-1,
            input_sentence_size=TRAIN_LINES,
            shuffle_input_sentence=True,
            max_sentence_length=4 * CUT + 4,
            num_threads=THREADS,
            minloglevel=2,
        )
    except RuntimeError as e:
        from ...runtime._pieces import reason

        raise ValueError(_why_not(vocab_size, reason(e))) from e
    return out.getvalue()


class SentencePieceTokenizer(Tokenizer):
    """Splits lines into the pieces of a trained model, then <eos>. Ids are those of the model."""

    kind = "sentencepiece"
    end = EOS

    def __init__(self, model: bytes) -> None:
        _sentencepiece()  # if it is missing, the error names the extra
        from ...runtime._pieces import Pieces

        self.model = bytes(model)
        self.pieces = Pieces(self.model)

    def __reduce__(self) -> tuple[Any, ...]:  # worker processes get the bytes and load them again
        return SentencePieceTokenizer, (self.model,)

    @property
    def processor(self) -> Any:
        """The processor object of the sentencepiece package."""
        return self.pieces.processor

    def vocab_symbols(self) -> list[str]:
        """The pieces in id order."""
        return [self.pieces.piece(i) for i in range(self.pieces.size)]

    def symbols(self, text: str) -> list[str]:
        return list(self.processor.encode(text, out_type=str))

    def text(self, symbols: Sequence[str]) -> str:
        return self.pieces.text(symbols)

    def encode_pieces(self, pieces: Sequence[str], vocab: Vocab, missing: int) -> Encoded:
        rows = self.processor.encode(list(pieces), out_type=int, num_threads=1)
        for row in rows:
            row.append(1)
        lengths = np.array([len(r) for r in rows], dtype=np.int64)
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
        return ids, lengths

    def config(self) -> dict[str, Any]:
        return {"kind": self.kind, "model": MODEL}


def _cut(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for start in range(0, len(line), CUT):
            yield line[start : start + CUT]


def _why_not(vocab_size: int, reason: str) -> str:
    """Rewrites an error of sentencepiece in terms of the flags of tsm-preprocess."""
    if most := re.search(r"too high .*<= (\d+)", reason):
        return f"--vocab-size is {vocab_size}; accepted with this text: up to {most[1]}"
    if least := re.search(r"smaller than required_chars\D+\d+ vs (\d+)", reason):
        return (
            f"--vocab-size is {vocab_size}; accepted with this text: {least[1]} (its characters and "
            "256 bytes) or more"
        )
    return f"sentencepiece cannot learn {vocab_size} pieces from this text: {reason}"
