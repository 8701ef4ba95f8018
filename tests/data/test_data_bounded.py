"""Small files that claim to hold a terabyte are refused, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.common import bounded
from tsm.plugin.data import files
from tsm.plugin.data.datasets.imdb import read_reviews
from tsm.plugin.data.datasets.mnist import read_idx
from tsm.plugin.data.files import Entry, archive_members, read_blocks, read_lines
from tsm.plugin.data.npy import read_npy

SRC = Path(__file__).resolve().parents[2] / "src"
TERABYTE = 1 << 40
NPY = {"descr": "<f4", "fortran_order": False, "shape": (1 << 38, 1)}


def sparse_tar(path, name):
    """A sparse file in the old GNU format: 512 bytes of data after a hole of a terabyte."""
    info = tarfile.TarInfo(name)
    info.size = 512
    head = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    head[156:157] = b"S"

    def octal(n):  # or, above 8 GB, a number in base 256
        return b"%011o\0" % n if n < 8**11 else b"\x80" + n.to_bytes(11, "big")

    head[386:410] = octal(TERABYTE - 512) + octal(512)  # one piece: offset and length
    head[483:495] = octal(TERABYTE)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    path.write_bytes(bytes(head) + b"good film".ljust(512) + bytes(1024))


def header_npy():
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, NPY)
    return out.getvalue()


def test_a_sparse_tar_of_reviews(tmp_path):
    path = tmp_path / "aclImdb_v1.tar"
    sparse_tar(path, "aclImdb/train/pos/0_9.txt")
    assert path.stat().st_size < 2100
    with tarfile.open(path) as tar:
        assert tar.next().size == TERABYTE
    with pytest.raises(ValueError, match=r"0_9.txt: more than 1,048,576 bytes"):
        read_reviews(tmp_path)


def test_in_little_memory(tmp_path):
    """The whole command, with memory limited to 3 GB."""
    sparse_tar(tmp_path / "aclImdb_v1.tar", "aclImdb/train/pos/0_9.txt")
    flags = ["--dataset=imdb", f"--from={tmp_path}", "--no-glove", f"--destdir={tmp_path / 'out'}"]
    done = subprocess.run(
        [sys.executable, "-m", "tsm.plugin.cli.preprocess", *flags],
        env={**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "more than 1,048,576 bytes" in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_text_in_a_sparse_tar(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "FLOOR", 1 << 20)
    sparse_tar(tmp_path / "x.tar", "text8")
    entry = files.find(tmp_path, ("text8",))
    with pytest.raises(ValueError, match=r"x.tar:text8: unpacks to more than"):
        list(read_blocks(entry))


def test_a_sparse_file_among_the_reviews(tmp_path):
    folder = tmp_path / "aclImdb" / "train" / "pos"
    folder.mkdir(parents=True)
    with open(folder / "0_9.txt", "wb") as f:
        f.truncate(TERABYTE)
    with pytest.raises(ValueError, match=r"0_9.txt: more than 1,048,576 bytes"):
        read_reviews(tmp_path)


@pytest.mark.parametrize("opener", [gzip.open, bz2.open, lzma.open], ids=["gz", "bz2", "xz"])
def test_bombs(tmp_path, monkeypatch, opener):
    """A compressed text of newlines, alone and in a zip, and a compressed tar that consists only of headers."""
    monkeypatch.setattr(bounded, "FLOOR", 1 << 16)
    end = {gzip.open: "gz", bz2.open: "bz2", lzma.open: "xz"}[opener]
    path = tmp_path / f"a.txt.{end}"
    with opener(path, "wb") as f:
        f.write(b"\n" * (1 << 20))
    assert path.stat().st_size < 2_000
    with pytest.raises(
        ValueError, match=r"unpacks to more than .*accepted: less, or the file unpacked"
    ):
        sum(1 for _ in read_lines(Entry(path)))
    tar = tmp_path / f"a.tar.{end}"
    with opener(tar, "wb") as f:
        f.write(tarfile.TarInfo("x").tobuf() * 2048)
    with pytest.raises(ValueError, match="unpacks to more than"):
        archive_members(tar)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b.txt", b"\n" * (1 << 20))
        archive.write(path, path.name)
    for member in ("b.txt", path.name):
        with pytest.raises(ValueError, match="unpacks to more than"):
            sum(1 for _ in read_lines(Entry(tmp_path / "a.zip", member)))


def test_too_many_members(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_MEMBERS", 100)
    (tmp_path / "a.tar").write_bytes(tarfile.TarInfo("x").tobuf() * 101)
    with pytest.raises(ValueError, match="more than 100 members"):
        archive_members(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("name", "head", "read"),
    [
        ("images", struct.pack(">4B3I", 0, 0, 8, 3, 2**32 - 1, 28, 28), lambda e: read_idx(e, 3)),
        ("wide", struct.pack(">4B3I", 0, 0, 8, 3, 60_000, 2**20, 28), lambda e: read_idx(e, 3)),
        ("labels", struct.pack(">4BI", 0, 0, 8, 1, 2**32 - 1), lambda e: read_idx(e, 1)),
        ("a.npy", header_npy(), read_npy),
    ],
)
def test_headers_that_promise_too_much(tmp_path, name, head, read):
    """Files whose header states a size that is too large are refused, whether or not they are that long."""
    path = tmp_path / name
    path.write_bytes(head)
    with pytest.raises(ValueError, match=rf"{name}: .*accepted: "):
        read(Entry(path))
    os.truncate(path, TERABYTE)
    with pytest.raises(ValueError, match=rf"{name}: .*accepted: "):
        read(Entry(path))


@pytest.mark.parametrize("read", [lambda e: read_idx(e, 1), read_npy], ids=["idx", "npy"])
def test_files_that_go_on_after_their_end(tmp_path, read):
    path = tmp_path / "labels"
    path.write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 5))
    if read is read_npy:
        np.save(tmp_path / "a.npy", np.zeros(3, np.float32))
        path = tmp_path / "a.npy"
    os.truncate(path, TERABYTE)
    with pytest.raises(ValueError, match="more than"):
        read(Entry(path))


def test_a_sparse_sentencepiece_model(tmp_path, run, fails):
    (tmp_path / "a.txt").write_text("a b\n")
    model = tmp_path / "m.model"
    model.touch()
    os.truncate(model, TERABYTE)
    flags = ["--bpe=sentencepiece", f"--sentencepiece-model={model}"]
    fails(
        run(f"--trainpref={tmp_path / 'a.txt'}", *flags, f"--destdir={tmp_path / 'o'}"), "m.model"
    )
