"""Fixtures: every writer and, for data folders, a file system that cannot exchange two names."""

from __future__ import annotations

import pytest

from tsm.plugin.data import staged_folder as folder

from .writers import WRITERS


@pytest.fixture(params=[*WRITERS, "a data folder, without exchange"])
def writer(request, monkeypatch):
    name = request.param.partition(",")[0]
    if name != request.param:
        monkeypatch.setattr(folder, "exchange", lambda a, b: False)
    return WRITERS[name]
