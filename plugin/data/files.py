"""Finds a file by its usual names and reads it: plain, compressed (.xz .gz .bz2), or inside a zip or tar
archive.

Nothing is unpacked to disk. For a file that is damaged, truncated or larger than bounded.py accepts, a
ValueError that names it is raised.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..common.bounded import allowed, bounded

COMPRESSED: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
MAGIC: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}
ARCHIVES = (".zip", ".tgz", ".tar", ".tar.gz", ".tar.xz", ".tar.bz2")
DEPTH = 2  # levels of folders below --from that are searched
MAX_LINE = 1 << 26  # characters


class Encoding(NamedTuple):
    """The encoding of a text file. errors: as in bytes.decode."""

    name: str
    errors: str = "strict"


UTF8 = Encoding("utf-8-sig")  # with or without a byte order mark
MAX_MEMBERS = 1_000_000  # files in an archive
DAMAGE = (
    lzma.LZMAError,
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    tarfile.TarError,
)


@dataclass(frozen=True)
class Entry:
    """A file, or the member of an archive."""

    path: Path
    member: str | None = None

    @property
    def name(self) -> str:
        """The name used in messages; for a member, the archive's name and its own."""
        return self.path.name if self.member is None else f"{self.path.name}:{self.member}"

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The unpacked bytes as a stream."""
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} is not there or not a file")
        try:
            with ExitStack() as stack:
                yield self._unpacked(stack)
        except DAMAGE as e:
            raise ValueError(
                f"{self.path} is damaged or cut short ({e or type(e).__name__})"
            ) from e

    def _unpacked(self, stack: ExitStack) -> IO[bytes]:
        limit = allowed(self.path)
        raw: IO[bytes]
        if self.member is None:
            raw = stack.enter_context(self.path.open("rb"))
        elif self.path.suffix in (".zip", ".npz"):
            archive = stack.enter_context(zipfile.ZipFile(self.path))
            raw = bounded(stack.enter_context(archive.open(self.member)), limit, self.name)
        else:
            raw = self._in_tar(stack, limit)
        opener = COMPRESSED.get(Path(self.member or self.path.name).suffix)
        if opener is None:
            return raw
        return bounded(stack.enter_context(opener(raw)), limit, self.name)

    def _in_tar(self, stack: ExitStack, limit: int) -> IO[bytes]:
        tar = stack.enter_context(open_tar(self.path))
        for member in tar_members(tar, self.path):
            if member.name == self.member:
                found = tar.extractfile(member)
                if found is not None:
                    return bounded(stack.enter_context(found), limit, self.name)
        raise ValueError(f"{self.name} is not a plain file")


@contextmanager
def open_tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Opens a tar file, compressed or not, to be read once from start to end."""
    with ExitStack() as stack:
        raw: IO[bytes] = stack.enter_context(path.open("rb"))
        start = raw.read(6)
        raw.seek(0)
        for magic, opener in MAGIC.items():
            if start.startswith(magic):
                raw = bounded(stack.enter_context(opener(raw)), allowed(path), path.name)
        yield stack.enter_context(tarfile.open(fileobj=raw, mode="r|"))


def tar_members(tar: tarfile.TarFile, path: Path) -> Iterator[tarfile.TarInfo]:
    """The plain files of a tar in order. A sparse file may claim any size, so read it with a limit."""
    for number, member in enumerate(tar):
        if number >= MAX_MEMBERS:
            raise ValueError(
                f"{path}: more than {MAX_MEMBERS:,} members; accepted: at most that many"
            )
        if member.isfile():
            yield member


def find(root: Path, names: Sequence[str]) -> Entry | None:
    """Finds the first of names under root: plain, else compressed, else in an archive. The least deeply nested
    one is taken.

    Returns None if there is none. Two files at the same depth are an error, since the choice is ambiguous.
    """
    files = list_files(root)
    for name in names:
        for suffix in ("", *COMPRESSED):
            hits = [p for p in files if p.name == name + suffix]
            if hits:
                depth = min(len(p.parts) for p in hits)
                return Entry(_only([p for p in hits if len(p.parts) == depth], name))
    for path in files:
        if path.name.endswith(ARCHIVES):
            members = archive_members(path)
            for name in names:
                for suffix in ("", *COMPRESSED):
                    inside = [m for m in members if m.rsplit("/", 1)[-1] == name + suffix]
                    if inside:
                        return Entry(path, min(inside, key=lambda m: (m.count("/"), m)))
    return None


def require(root: Path, names: Sequence[str], what: str) -> Entry:
    """find(), or an error that lists the names looked for."""
    entry = find(root, names)
    if entry is None:
        raise FileNotFoundError(
            f"{what} not found under {root}; looked for {', '.join(names)} (plain, .xz, .gz, .bz2, "
            "or in a zip or tar)"
        )
    return entry


def list_files(root: Path) -> list[Path]:
    """root itself if it is a file, else the files at most DEPTH folders below it, sorted."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise FileNotFoundError(
            f"--from {root} does not exist; accepted: a folder with the data, or an archive"
        )
    out: list[Path] = []
    for folder, subfolders, names in os.walk(root):
        depth = len(Path(folder).relative_to(root).parts)
        subfolders[:] = (
            [] if depth >= DEPTH else sorted(s for s in subfolders if not s.startswith("."))
        )
        out.extend(Path(folder, n) for n in sorted(names))
    return out


def archive_members(path: Path) -> list[str]:
    """Names of the plain files in a zip or tar."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as z:
                return [i.filename for i in z.infolist() if not i.is_dir()]
        with open_tar(path) as tar:
            return [member.name for member in tar_members(tar, path)]
    except DAMAGE as e:
        raise ValueError(f"{path} is damaged or cut short ({e or type(e).__name__})") from e


def encoding_of(name: str | None, errors: str | None = None) -> Encoding:
    """The encoding given by --encoding, UTF-8 by default. errors: --encoding-errors."""
    errors = errors or UTF8.errors
    if name is None:
        return Encoding(UTF8.name, errors)
    try:
        "".encode(name)  # base64 and similar codecs are not for text
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        raise ValueError(
            f"--encoding is {name!r}; accepted: a name such as utf-8, latin-1, cp1252"
        ) from None
    return Encoding(UTF8.name if found == "utf-8" else found, errors)


def read_lines(entry: Entry, encoding: Encoding = UTF8) -> Iterator[str]:
    """The lines of a text without their newlines. No other separator ends a line."""
    number = 0
    with entry.open() as raw, io.TextIOWrapper(raw, *encoding, newline="\n") as text:
        while True:
            number += 1
            try:
                line = text.readline(MAX_LINE)
            except UnicodeDecodeError as e:  # it may be in bytes read ahead, some lines later
                number += e.object[: e.start].count(b"\n")
                raise _not_text(entry, encoding, f"line {number}", e) from e
            if not line:
                return
            if len(line) >= MAX_LINE and not line.endswith("\n"):
                raise ValueError(
                    f"{entry.name}, line {number}: longer than {MAX_LINE:,} characters; "
                    "accepted: shorter lines, or --tokenizer char, which reads blocks"
                )
            yield line[:-1] if line.endswith("\n") else line


def read_blocks(entry: Entry, encoding: Encoding = UTF8, size: int = 1 << 20) -> Iterator[str]:
    """The text in blocks of at most `size` characters."""
    done = 0
    with entry.open() as raw, io.TextIOWrapper(raw, *encoding, newline="\n") as text:
        while True:
            try:
                block = text.read(size)
            except UnicodeDecodeError as e:
                raise _not_text(entry, encoding, f"after character {done}", e) from e
            if not block:
                return
            done += len(block)
            yield block


def _not_text(
    entry: Entry, encoding: Encoding, where: str, error: UnicodeDecodeError
) -> ValueError:
    if encoding != UTF8:  # error.encoding may be a whole family, such as "charmap"
        return ValueError(
            f"{entry.name}, {where}: not {encoding.name} ({error.reason}); accepted: the file's own "
            "--encoding, or --encoding-errors replace"
        )
    if error.start == 0 and error.object.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return ValueError(
            f"{entry.name}, {where}: not UTF-8, but with the byte order mark of UTF-16; accepted: --encoding "
            "utf-16"
        )
    return ValueError(
        f"{entry.name}, {where}: not UTF-8 ({error.reason}); accepted: UTF-8, or the file's own "
        "with --encoding, e.g. latin-1, or --encoding-errors replace"
    )


def _only(hits: list[Path], name: str) -> Path:
    if len(hits) > 1:
        raise ValueError(
            f"{name} is there {len(hits)} times ({hits[0]}, {hits[1]}); name one folder with --from"
        )
    return hits[0]
