"""Finding and reading files: usual names, compression, archives; errors say what is damaged."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from tsm.plugin.data import files
from tsm.plugin.data.files import Entry, find, read_blocks, read_lines, require

TEXT = "one\ntwo \u2028 three\r\n\nlast"
PACK = {"": lambda b: b, ".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}


def write_tar(path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("suffix", PACK)
def test_every_compression_reads_the_same(tmp_path, suffix):
    (tmp_path / f"a.txt{suffix}").write_bytes(PACK[suffix](TEXT.encode()))
    entry = require(tmp_path, ["a.txt"], "text")
    assert list(read_lines(entry)) == ["one", "two \u2028 three\r", "", "last"]
    assert "".join(read_blocks(entry, size=5)) == TEXT
    assert all(len(b) <= 5 for b in read_blocks(entry, size=5))


def test_archives(tmp_path):
    write_tar(tmp_path / "x.tgz", {"deep/er/a.txt": b"tar"})
    with zipfile.ZipFile(tmp_path / "y.zip", "w") as z:
        z.writestr("in/b.txt.xz", lzma.compress(b"zip"))
    assert list(read_lines(require(tmp_path, ["a.txt"], "a"))) == ["tar"]
    assert list(read_lines(require(tmp_path, ["b.txt"], "b"))) == ["zip"]
    assert list(read_lines(require(tmp_path / "y.zip", ["b.txt"], "b"))) == ["zip"]


def test_shallow_and_plain_come_first(tmp_path):
    for path, content in (
        ("s/t/a.txt", "deep"),
        ("s/a.txt.gz", "packed"),
        ("a2.txt", "second name"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        (tmp_path / path).write_bytes(gzip.compress(data) if path.endswith("gz") else data)
    assert list(read_lines(find(tmp_path, ["a.txt", "a2.txt"]))) == ["deep"]
    (tmp_path / "a.txt").write_text("top")
    assert list(read_lines(find(tmp_path, ["a.txt"]))) == ["top"]


def test_two_of_a_name_are_not_guessed(tmp_path):
    for folder in "pq":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.txt").write_text("x")
    with pytest.raises(ValueError, match=r"train.txt is there 2 times.*--from"):
        find(tmp_path, ["train.txt"])


def test_not_found_lists_the_names(tmp_path):
    assert find(tmp_path, ["a.txt"]) is None
    with pytest.raises(FileNotFoundError, match=r"PTB not found under .*a.txt, b.txt"):
        require(tmp_path, ["a.txt", "b.txt"], "PTB")
    with pytest.raises(FileNotFoundError, match=r"--from .* does not exist"):
        find(tmp_path / "nowhere", ["a.txt"])


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2"])
def test_cut_or_garbled_compression_is_named(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    whole = PACK[suffix](bytes(range(256)) * 40)
    for bad in (whole[: len(whole) // 2], b"not compressed at all"):
        path.write_bytes(bad)
        with pytest.raises((ValueError, OSError), match=r"a.txt|Invalid data stream"):
            list(read_blocks(Entry(path)))


def test_damaged_archive_is_named(tmp_path):
    for name in ("x.zip", "x.tgz"):
        (tmp_path / name).write_bytes(b"PK but not really")
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            find(tmp_path, ["a.txt"])
        (tmp_path / name).unlink()


def test_not_utf8_names_the_line(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n" * 3 + b"\xff\xfe\n")
    with pytest.raises(ValueError, match=r"a.txt, line \d+: not UTF-8"):
        list(read_lines(Entry(tmp_path / "a.txt")))
    with pytest.raises(ValueError, match=r"a.txt, after character 0: not UTF-8"):
        list(read_blocks(Entry(tmp_path / "a.txt")))


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 100)
    (tmp_path / "a.txt").write_text("ok\n" + "x" * 99 + "\n" + "y" * 101 + "\n")
    lines = read_lines(Entry(tmp_path / "a.txt"))
    assert [len(next(lines)), len(next(lines))] == [2, 99]
    with pytest.raises(ValueError, match=r"line 3: longer than 100.*--tokenizer char"):
        next(lines)


def test_byte_order_mark_is_not_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfhello\n")
    assert list(read_lines(Entry(tmp_path / "a.txt"))) == ["hello"]
