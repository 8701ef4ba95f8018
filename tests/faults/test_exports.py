"""An export of several files or folders that fails: all of them are there, or none is, as the error says."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from tsm.export import entry
from tsm.plugin.common.atomic import NotDurable

from .disk import Disk


def repository(root: Path, names: tuple[str, ...] = ("m_onnx", "m_runtime")) -> None:
    """Models are added to a repository with another one."""
    with entry._staged(root / "repository") as staged:
        for name in names:
            (staged / name / "1").mkdir(parents=True)
            (staged / name / "1" / "model").write_text(name)


def large(root: Path) -> None:
    with entry._staged(root / "m.onnx") as staged:
        staged.write_text("new")
        staged.with_name("m.onnx.0123456789abcdef.data").write_text("weights")


def files(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): p.read_text() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def start(tmp_path) -> Path:
    """A folder with earlier exports."""
    start = tmp_path / "start"
    (start / "repository" / "other").mkdir(parents=True)
    (start / "repository" / "other" / "config").write_text("other")
    (start / "m.onnx").write_text("old")
    (start / "m.onnx.fedcba9876543210.data").write_text("weights of old")
    return start


@pytest.mark.parametrize("new", [False, True])
def test_a_repository_is_on_the_disk_when_its_export_returns(start, new):
    if new:
        shutil.rmtree(start / "repository")
    disk = Disk(start)
    with disk.watched():
        repository(start)
    after = {name: text.encode() for name, text in files(start).items()}
    for what, tree in disk.crashes_at_the_end():
        assert after.items() <= tree.items(), what


@pytest.mark.parametrize("write", [repository, large])
def test_all_or_nothing(start, tmp_path, write):
    root = tmp_path / "root"
    shutil.copytree(start, root)
    write(root)
    before, after, number = files(start), files(root), 0
    while True:
        shutil.rmtree(root)
        shutil.copytree(start, root)
        number += 1
        disk = Disk(root, fail_at=number, error=OSError(errno.EIO, "EIO"))
        try:
            with disk.watched():
                write(root)
        except NotDurable:
            assert after.items() <= files(root).items()
        except OSError as error:
            if disk.failed == "unlink":  # of weights that the old file used
                assert after.items() <= files(root).items()
                continue
            assert "nothing was written" in str(error), disk.failed
            assert files(root) == before, disk.failed
        else:
            if disk.failed is None:
                assert files(root) == after
                break
    assert number > 4


def test_a_disk_that_takes_nothing_back(tmp_path, monkeypatch):
    """The error names what is left."""
    (tmp_path / "repository").mkdir()
    rename, done = os.rename, []

    def twice(old, new):
        if len(done) == 2:
            raise OSError(errno.EROFS, "Read-only file system")
        done.append(str(new))
        rename(old, new)

    monkeypatch.setattr(entry.os, "rename", twice)
    with pytest.raises(OSError, match="Read-only file system; delete this: the exp") as failed:
        repository(tmp_path, ("a", "b", "c"))
    assert failed.value.filename == ", ".join(done)
    assert "nothing was written" not in str(failed.value)


def test_an_interrupt_after_the_last_rename(tmp_path, monkeypatch):
    """The export is complete, and stays so."""
    replace = os.replace

    def interrupted(old, new):
        replace(old, new)
        if Path(new).name == "m.onnx":
            raise KeyboardInterrupt

    monkeypatch.setattr(entry.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        large(tmp_path)
    assert sorted(files(tmp_path).values()) == ["new", "weights"]
