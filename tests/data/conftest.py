"""Fixtures for the data tests: where real data may be, and small corpora of every shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elsewhere import data_folder
from own_text import write_text
from tsm.plugin.data import Corpus, CorpusWriter


@pytest.fixture(scope="session")
def real_data() -> Path:
    return data_folder()


@pytest.fixture
def text(tmp_path) -> Path:
    """A folder with a user's own text."""
    write_text(tmp_path)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run tsm-preprocess; returns exit code, stdout, stderr."""
    from tsm.plugin.cli.preprocess import main

    def call(*args) -> tuple[int, str, str]:
        code = main([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def make_corpus(tmp_path):
    """Write items (and labels) as a corpus and open it."""

    def make(items, labels=None, vocab_size=100, name="train") -> Corpus:
        with CorpusWriter(tmp_path / name, vocab_size) as writer:
            for i, item in enumerate(items):
                writer.write(np.asarray(item, dtype=np.int64))
                writer.end_item(None if labels is None else labels[i])
        return Corpus(tmp_path / name)

    return make


def fails(result: tuple[int, str, str], *parts: str) -> None:
    """Checks that a run ended with code 2 and one sentence on stderr that contains all parts."""
    code, _, err = result
    assert code == 2, err
    assert err.startswith("tsm-preprocess: error: "), err
    assert err.count("\n") == 1, err
    for part in parts:
        assert part in err, err


@pytest.fixture(name="fails")
def _fails():
    return fails
