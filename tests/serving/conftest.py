"""Each kind of store, empty."""

from __future__ import annotations

import pytest

from . import stores


def _opened(request, tmp_path):
    if request.param == "redis" and (why := stores.no_redis()):
        pytest.skip(why)
    with stores.KINDS[request.param](tmp_path) as found:
        yield found


opened = pytest.fixture(_opened, params=stores.KINDS, name="opened")
durable = pytest.fixture(_opened, params=stores.DURABLE, name="durable")


@pytest.fixture
def store(opened):
    store = opened.open()
    yield store
    store.close()
