"""Which columns of the training data named the sequence and held the time."""

from __future__ import annotations

import pytest

from tsm.plugin.data.roles import check_roles, dump_roles, load_roles


def test_bytes():
    roles = {"sequence": "my id", "time": "t\n"}
    assert dump_roles(roles) == b"sequence my\\sid\ntime t\\n\n"
    assert load_roles(dump_roles(roles), "here") == roles
    assert load_roles(b"", "here") == {}


@pytest.mark.parametrize(
    "data",
    [
        *(b"sequence\n", b"sequence \n", b"dt a b\n", b"label a\n", b"dt \xff\n", b"dt \\q\n"),
        *(b"dt \\u{d800}\n", b"\0\1", b"sequence id", b"sequence id\ndt d", b"\n"),  # cut short
        *(b"dt dt\ntime y\n", b"sequence a\nsequence b\n", b"dt a\nsequence b\n"),
        b"sequence a\n" * 100_000,
    ],
)
def test_damaged_bytes(data):
    with pytest.raises(
        ValueError, match=r"^here is .*; accepted: a column for sequence, and one for dt or time"
    ):
        load_roles(data, "here")


@pytest.mark.parametrize(
    "value", [None, ["dt"], {"dt": 1}, {"x": "dt"}, {"dt": ""}, {"dt": "a", "time": "b"}]
)
def test_damaged_entries_of_meta(value):
    with pytest.raises(ValueError, match=r"^meta.json is .*; accepted: "):
        check_roles(value, "meta.json")
