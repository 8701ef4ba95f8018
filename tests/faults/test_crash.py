"""After a crash of the process or the machine between any two calls, the old or the new version is complete."""

from __future__ import annotations

import shutil

from .disk import Disk, lay_out


def test_between_any_two_calls(writer, tmp_path):
    root, after = tmp_path / "root", tmp_path / "after"
    root.mkdir()
    writer.write(root, "old")
    with Disk(root).watched() as disk:
        writer.write(root, "new")
    assert "fsync" in disk.calls and {"replace", "exchange"} & set(disk.calls)
    found = set()
    for what, tree in disk.crashes():
        lay_out(tree, after)
        try:
            version = writer.read(after)
        except Exception as error:
            raise AssertionError(f"{what}: {sorted(tree)}") from error
        found.add(version)
        shutil.rmtree(after)
    assert found == {"old", "new"}


def test_what_was_written_stays(writer, tmp_path):
    """Once the call has returned, no crash undoes it."""
    root, after = tmp_path / "root", tmp_path / "after"
    root.mkdir()
    writer.write(root, "old")
    with Disk(root).watched() as disk:
        writer.write(root, "new")
    for what, tree in disk.crashes_at_the_end():
        lay_out(tree, after)
        assert writer.read(after) == "new", what
        shutil.rmtree(after)


def test_after_any_crash_it_can_be_written_again(writer, tmp_path):
    root, after = tmp_path / "root", tmp_path / "after"
    root.mkdir()
    writer.write(root, "old")
    with Disk(root).watched() as disk:
        writer.write(root, "new")
    for what, tree in disk.crashes():
        if "replace" in what or "rename" in what or "exchange" in what:
            lay_out(tree, after)
            writer.write(after, "new")
            assert writer.read(after) == "new", what
            shutil.rmtree(after)
