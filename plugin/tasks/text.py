"""The base of text tasks: a preprocessed folder, a dictionary, and the files that a model needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .base import TASKS, Task

if TYPE_CHECKING:
    from ..data import DataDir, Vocab


class TextTask(Task):
    """A task with a `vocab`. `characters`: whether its symbols are single characters.

    `assets` are the files that turn text into the model's tokens.
    """

    vocab: Vocab
    tokenizer: str = "word"  # the kind of tokenizer that produced its symbols
    characters: bool = False
    dataset: str = ""

    def open_folder(self, wanted: str) -> DataDir:
        """The folder `config.data`, which must have been preprocessed for this kind of task."""
        from ..data import DataDir

        folder = DataDir(Path(self.config.data))
        if folder.meta.task != wanted:
            advice = f" (give --task {folder.meta.task})" if folder.meta.task in TASKS else ""
            raise ValueError(
                f"{self.config.data} was preprocessed for {folder.meta.task}; --task {self.name} "
                f"needs {wanted}" + advice
            )
        self.vocab = folder.vocab
        self.tokenizer = str((folder.meta.tokenizer or {}).get("kind", "word"))
        self.characters = self.tokenizer.startswith("char")
        self.dataset = folder.meta.dataset or folder.folder.name
        self._folder: DataDir | None = folder
        return folder

    def assets(self) -> dict[str, bytes]:
        """dict.txt and, for pieces, the sentencepiece model."""
        from ..data.subword import MODEL
        from ..data.vocab import DICT

        files = {DICT: self.vocab.dumps()}
        folder = getattr(self, "_folder", None)
        if folder is not None and (folder.folder / MODEL).is_file():
            files[MODEL] = (folder.folder / MODEL).read_bytes()
        return files
