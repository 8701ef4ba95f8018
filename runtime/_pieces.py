"""Encodes and decodes text for sentencepiece models; needs the package sentencepiece.

The model's pieces 0 and 1 are <unk> and <eos>; a newline in a text is <eos>.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._core import TsmError
from ._errors import bad_file

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EOS, END = "<eos>", 1


def package() -> Any:
    """The module sentencepiece."""
    try:
        import sentencepiece
    except ImportError as error:
        raise ModuleNotFoundError(
            "sentencepiece is not installed; run: pip install sentencepiece", name="sentencepiece"
        ) from error
    return sentencepiece


def reason(error: Exception) -> str:
    """The last part of sentencepiece's message, which comes after a source file and a condition."""
    message = " ".join(str(error).split())
    return message.rsplit("] ", 1)[-1].strip() or message or "no reason given"


class Pieces:
    """Converts text to the pieces of a trained model, and back."""

    def __init__(self, model: bytes) -> None:
        self.processor = package().SentencePieceProcessor()
        try:
            self.processor.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise bad_file(
                f"sentencepiece model of {len(model)} bytes is damaged: {reason(error)}"
            ) from error
        if self.size < 2 or self.processor.id_to_piece(END) != EOS:
            raise bad_file(
                f"sentencepiece model: piece 1 is not {EOS}; accepted: a model made by tsm-preprocess"
            )

    @property
    def size(self) -> int:
        return int(self.processor.get_piece_size())

    def encode(self, text: str) -> NDArray[np.int64]:
        """Encodes all complete lines with their newlines, then the rest after the last newline."""
        import numpy as np

        lines = self.processor.encode(text.split("\n"), out_type=int, num_threads=1)
        ids = [token for line in lines[:-1] for token in (*line, END)] + lines[-1]
        return np.array(ids, np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        return self.text([self.piece(token) for token in tokens])

    def piece(self, token: int) -> str:
        if not 0 <= token < self.size:
            raise TsmError(
                f"token id {token} is not in the dictionary; accepted: 0 to {self.size - 1}"
            )
        return str(self.processor.id_to_piece(token))

    def text(self, pieces: Sequence[str]) -> str:
        """The text that pieces stand for."""
        lines: list[list[str]] = [[]]
        for piece in pieces:
            if piece == EOS:
                lines.append([])
            else:
                lines[-1].append(piece)
        return "\n".join(self.processor.decode(line) if line else "" for line in lines)
