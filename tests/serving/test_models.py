"""What the server tells about its models, and which files it refuses."""

from __future__ import annotations

import importlib

import pytest

from tsm.plugin import build_model
from tsm.runtime import TsmError
from tsm.runtime.serving.streams.models import Models, Source
from tsm.runtime.serving.transport.limits import Limits

package = importlib.import_module("tsm.export.tsm.package")


def test_names_of_inputs_and_classes(server):
    """Of every model; null where the file has none."""
    found = {one["id"]: one for one in server.ask("GET", "/v1/models").json["data"]}
    assert found["tagger"] == server.ask("GET", "/v1/models/tagger").json
    assert found["tagger"]["labels"] == ["up", "to go", "down"]
    assert found["tagger"]["columns"] is None
    assert found["tagger"]["takes_dt"] is True
    assert found["ids"]["labels"] is None and found["ids"]["takes_dt"] is False


@pytest.mark.parametrize("file", ["labels.txt", "columns.txt"])
def test_a_file_with_damaged_names_is_refused_when_it_is_loaded(tmp_path, monkeypatch, file):
    monkeypatch.setattr(package, "load_labels", lambda data, where, count: None)
    model = build_model("lstm_tagger", input_size=2, num_classes=2)
    package.package(model, tmp_path / "m.tsm", assets={file: b"a\na\n"})
    with pytest.raises(TsmError, match="accepted: 2 different names"):
        Models([Source("m", str(tmp_path / "m.tsm"))], Limits(), "float32", 1)
