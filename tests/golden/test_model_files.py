"""Files of every format version so far can still be read, and give the same outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tolerances import assert_close
from tsm.runtime import Model

FILES = sorted(Path(__file__).parent.glob("v*.tsm"))


def test_there_is_a_file_of_every_format():
    from tsm.export.tsm.package import FORMAT

    assert [f.stem for f in FILES] == [f"v{n}" for n in range(1, FORMAT + 1)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_old_files(path):
    wanted = json.loads(path.with_suffix(".json").read_text())
    model = Model.load(path)
    stream = model.create_stream()
    logits = stream.feed(np.array(wanted["tokens"]), np.array(wanted["dt"], dtype=np.float32))
    assert_close(logits, np.array(wanted["logits"]), "stream", "float32", "logits")
    state = stream.state()
    for number, layer in enumerate(wanted["state"]):
        for name, value in layer.items():
            assert_close(state[name][number], np.array(value), "stream", "float32", name)
    assert model.asset("text.dict") == b"".join(
        f"{s} {9 - i}\n".encode() for i, s in enumerate("abcdefg")
    )


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_built_in_cells_still_have_their_programs(path):
    """A file that used a compiled cell must not silently become slower."""
    assert not any(layer.interpreted for layer in Model.load(path).layers)
