"""Simulates a disk that fails, and the disk's contents after a crash.

`Disk(root)` records every Python call that changes files under a folder:

    open (of a new file), write, fsync, rename, replace, unlink, mkdir, rmdir, and the exchange of two names

and can make the n-th fail. The recorded calls can be replayed: `crashes()` gives every state of the folder that
a crash after any of them may leave.

    process crash    everything done so far stays
    machine crash    contents that were not fsynced survive or are lost (the file is empty); of the changes to a
                     folder since its last fsync, those up to some point survive, and all later ones are lost
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CALLS = ("open", "write", "fsync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir")
# Names maps the names in a folder to inodes; Tree maps paths to contents, or to None for a folder.
Names = dict[str, int]
Tree = dict[str, bytes | None]


class Disk:
    """with Disk(root).watched() as disk: ...  Then disk.calls, disk.crashes()."""

    def __init__(self, root: Path, fail_at: int | None = None, error: OSError | str = "") -> None:
        self.root, self.fail_at, self.error = root, fail_at, error
        self.calls: list[str] = []
        self.failed: str | None = None
        # _folders has the names in each folder after each call, _durable the call that made them durable.
        self._folders: list[dict[int, Names]] = []
        self._durable: dict[int, int] = {}
        self._contents: list[dict[int, bytes]] = []
        self._synced: list[dict[int, bytes]] = []
        self._look()
        start = len(self._folders) - 1
        self._durable = dict.fromkeys(self._folders[0], start)
        self._durables = [dict(self._durable)]
        self._synced[0] = dict(self._contents[0])  # what existed before counts as synced

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        from tsm.plugin.data import staged_folder as folder

        before = {name: getattr(os, name) for name in CALLS}
        exchange = folder.exchange
        for name in CALLS:
            setattr(os, name, self._wrapped(name, before[name]))
        folder.exchange = self._wrapped("exchange", exchange)
        try:
            yield self
        finally:
            for name in CALLS:
                setattr(os, name, before[name])
            folder.exchange = exchange

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **options: Any) -> Any:
            if not self._concerns(name, arguments, options):
                return call(*arguments, **options)
            self.calls.append(name)
            if self.fail_at == len(self.calls):
                self.failed = name
                if self.error == "short" and name == "write":
                    fd, data = arguments
                    arguments = (fd, bytes(data)[: max(1, len(data) // 2)])
                elif isinstance(self.error, OSError):
                    raise self.error
            done = call(*arguments, **options)
            if self.fail_at is None:
                self._look(
                    synced=arguments[0] if name == "fsync" else None,
                    fresh=os.fstat(done).st_ino if name == "open" else None,
                )
            return done

        return watched

    def _concerns(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        if name in ("write", "fsync"):
            place = os.readlink(f"/proc/self/fd/{arguments[0]}")
            return Path(place).is_relative_to(self.root)
        if name == "open" and not arguments[1] & os.O_CREAT:
            return False
        if (
            options.get("dir_fd") is not None
        ):  # shutil.rmtree passes names relative to an open folder
            return Path(os.readlink(f"/proc/self/fd/{options['dir_fd']}")).is_relative_to(self.root)
        return Path(os.fsdecode(arguments[0])).absolute().is_relative_to(self.root)

    def _look(self, synced: int | None = None, fresh: int | None = None) -> None:
        """Record the current names and contents; files that have lost their name are kept."""
        folders: dict[int, Names] = {}
        contents = dict(self._contents[-1]) if self._contents else {}
        for place, _, files in os.walk(self.root):
            inode = os.stat(place).st_ino
            folders[inode] = {e.name: e.inode() for e in os.scandir(place)}
            for file in files:
                path = Path(place, file)
                contents[path.stat().st_ino] = path.read_bytes()
        on_disk = dict(self._synced[-1]) if self._synced else {}
        on_disk.pop(fresh, None)  # an inode number may be reused
        if synced is not None:
            info = os.fstat(synced)
            if stat.S_ISDIR(info.st_mode):
                self._durable[info.st_ino] = len(self._folders)
            else:
                on_disk[info.st_ino] = contents[info.st_ino]
        self._folders.append(folders)
        self._contents.append(contents)
        self._synced.append(on_disk)
        if hasattr(self, "_durables"):
            self._durables.append(dict(self._durable))

    def crashes(self) -> Iterator[tuple[str, Tree]]:
        """Yields (what happened, path -> contents or None for a folder), each state once."""
        seen: set[Any] = set()
        for now in range(len(self._folders)):
            for what, tree in self._states(now):
                key = tuple(sorted(tree.items()))
                if key not in seen:
                    seen.add(key)
                    yield what, tree

    def crashes_at_the_end(self) -> Iterator[tuple[str, Tree]]:
        """After the last call."""
        return self._states(len(self._folders) - 1)

    def _states(self, now: int) -> Iterator[tuple[str, Tree]]:
        top = os.stat(self.root).st_ino
        last = self.calls[now - 1] if now else "nothing"
        for kept in range(
            now + 1
        ):  # uses the names after call `kept`, or later names that are durable
            for data in (self._contents[now], self._synced[now]):
                what = f"after call {now} ({last}), with the names of {kept}"
                yield what, self._tree(top, now, kept, data)

    def _tree(self, folder: int, now: int, kept: int, data: dict[int, bytes], at: str = "") -> Tree:
        when = max(kept, self._durables[now].get(folder, 0))
        while when and folder not in self._folders[when]:
            when -= 1
        out: Tree = {}
        for name, inode in self._folders[when].get(folder, {}).items():
            path = f"{at}{name}"
            if any(inode in folders for folders in self._folders[: now + 1]):
                out[path] = None
                out |= self._tree(inode, now, kept, data, f"{path}/")
            else:
                out[path] = data.get(inode, b"")
        return out


def lay_out(tree: Tree, root: Path) -> None:
    """Set the folder `root` to the state after a crash."""
    root.mkdir()
    for path, data in sorted(tree.items()):
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
