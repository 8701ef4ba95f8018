"""Every system call fails once, in every way: afterwards the old or the new version is complete; if the old one
is left, or if nothing failed, no other file remains."""

from __future__ import annotations

import errno
import os
import shutil

import pytest

from .disk import Disk

ERRORS = {
    **{name: OSError(getattr(errno, name), name) for name in ("ENOSPC", "EIO")},
    "EINTR": InterruptedError(errno.EINTR, "EINTR"),
    "short": "short",
}


@pytest.mark.parametrize("error", ERRORS)
def test_every_call(writer, tmp_path, error):
    start = tmp_path / "start"
    start.mkdir()
    writer.write(start, "old")
    root = tmp_path / "root"
    number, raised = 0, 0
    while True:
        number += 1
        shutil.copytree(start, root)
        disk = Disk(root, fail_at=number, error=ERRORS[error])
        complete = False
        try:
            with disk.watched():
                writer.write(root, "new")
            complete = True
        except OSError as found:
            assert found.errno == getattr(errno, error, None), found
            raised += 1
        version = writer.read(root)
        assert version in (("new",) if complete else ("old", "new")), disk.failed
        if disk.failed not in ("unlink", "rmdir") and (complete or version == "old"):
            left = [name for _, *names in os.walk(root) for part in names for name in part]
            assert not [name for name in left if name.endswith((".tmp", ".old", ".stage"))], (
                disk.failed
            )
        writer.write(root, "new")
        assert writer.read(root) == "new"
        shutil.rmtree(root)
        if disk.failed is None:
            break
    assert number > 4 and bool(raised) == (error != "short")
