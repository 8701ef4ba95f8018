"""DataDir: a missing folder, mixed-up files or damage gives an error that names the file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tsm.plugin.data import CorpusWriter, DataDir, Vocab
from tsm.plugin.data import staged_folder as folder_module
from tsm.plugin.data.meta import Meta


@pytest.fixture
def folder(tmp_path):
    Vocab(["a", "b"], [2, 1]).save(tmp_path / "dict.txt")
    with CorpusWriter(tmp_path / "train", 2) as w:
        w.write(np.array([0, 1, 0]))
        w.end_item(1)
    np.save(tmp_path / "embeddings.npy", np.zeros((3, 4), np.float32))
    np.save(tmp_path / "train.images.npy", np.zeros((2, 28, 28), np.uint8))
    np.save(tmp_path / "train.labels.npy", np.zeros(2, np.uint8))
    meta = Meta(
        "classification",
        None,
        {"kind": "word"},
        {"train": {}},
        "",
        0,
        vocab_size=2,
        num_classes=2,
        embeddings={"file": "embeddings.npy"},
    )
    meta.save(tmp_path)
    return tmp_path


def change(folder, **fields):
    path = folder / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_sound(folder):
    data = DataDir(folder)
    assert data.corpus("train").read(0, 3).tolist() == [0, 1, 0]
    assert data.embeddings().shape == (3, 4)
    assert data.images("train")[0].shape == (2, 28, 28)
    assert data.tokenizer.kind == "word"


def test_missing_folder_prints_the_command(tmp_path):
    for path, why in ((tmp_path / "no", "does not exist"), (tmp_path, "is not preprocessed")):
        with pytest.raises(FileNotFoundError, match=rf"{why}.*tsm-preprocess .*--destdir"):
            DataDir(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"format": "other"}, "not written by tsm-preprocess"),
        ({"version": 2}, "version is 2; accepted: 1"),
        ({"task": "dancing"}, "task is 'dancing'"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"vocab_size": None}, "without a vocab_size"),
        ({"splits": [1]}, "splits"),
        ({"colour": "red"}, "colour"),
        ({"labels": ["\ud800", "b"], "num_classes": 2}, "damaged or cut short"),  # half a character
    ],
)
def test_bad_meta(folder, fields, message):
    change(folder, **fields)
    with pytest.raises(ValueError, match=message):
        DataDir(folder)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null"])
def test_garbled_meta(folder, raw):
    (folder / "meta.json").write_bytes(raw)
    with pytest.raises(ValueError, match=r"meta\.json"):
        DataDir(folder)


def test_dictionary_that_does_not_fit(folder):
    Vocab(["a", "b", "c"], [1, 1, 1]).save(folder / "dict.txt")
    with pytest.raises(ValueError, match=r"3 symbols; meta.json says 2"):
        _ = DataDir(folder).vocab
    Vocab(["a"], [1]).save(folder / "dict.txt")
    change(folder, vocab_size=1)
    with pytest.raises(ValueError, match=r"made for 2 symbols; dict.txt has 1"):
        DataDir(folder).corpus("train")


def test_label_that_does_not_fit(folder):
    change(folder, num_classes=1)
    with pytest.raises(ValueError, match="labels run from 0 to 1; accepted: 0 to 0"):
        DataDir(folder).corpus("train")


def test_unknown_split_and_tokenizer(folder):
    with pytest.raises(ValueError, match=r"split is 'dev'; .* has train"):
        DataDir(folder).corpus("dev")
    change(folder, tokenizer={"kind": "morse"})
    with pytest.raises(ValueError, match="'morse'"):
        _ = DataDir(folder).tokenizer


@pytest.mark.parametrize("name", ["embeddings.npy", "train.images.npy"])
@pytest.mark.parametrize("keep", [0, 20, 130])
def test_cut_arrays(folder, name, keep):
    path = folder / name
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=name):
        DataDir(folder).embeddings() if name == "embeddings.npy" else DataDir(folder).images(
            "train"
        )


def test_arrays_of_another_shape(folder):
    np.save(folder / "embeddings.npy", np.zeros((2, 4), np.float32))
    with pytest.raises(ValueError, match=r"accepted: float32 \[3, width\]"):
        DataDir(folder).embeddings()
    np.save(folder / "train.labels.npy", np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="labels"):
        DataDir(folder).images("train")


def write_version(dest: Path, text: str) -> None:
    with folder_module.staged_folder(dest) as stage:
        (stage / "meta.json").write_text(f'{{"format": "tsm-data", "files": [], "v": "{text}"}}')


def version_of(dest: Path) -> str:
    return json.loads((dest / "meta.json").read_text())["v"]


def test_a_folder_left_aside_is_taken_back_once_and_never_after_a_later_write(
    tmp_path, monkeypatch
):
    """A kill between two renames leaves the old folder under a temporary name; a later write makes it stale."""
    monkeypatch.setattr(folder_module, "exchange", lambda a, b: False)
    dest = tmp_path / "data"
    write_version(dest, "first")
    dest.rename(tmp_path / ".data.11111111.old")  # killed here
    folder_module.recover(dest)
    assert version_of(dest) == "first" and len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".data.22222222.old").mkdir()  # killed before the old one was removed
    write_version(dest, "second")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    assert version_of(dest) == "second"


@pytest.mark.parametrize("readers", [1, 3])
def test_a_reader_in_the_middle_of_a_change(tmp_path, monkeypatch, readers):
    """The reader gets the old folder, and then the writer's new folder takes over the name."""
    monkeypatch.setattr(folder_module, "exchange", lambda a, b: False)
    dest, rename, seen = tmp_path / "data", os.rename, []
    write_version(dest, "old")

    def interrupted(source, target):
        if Path(source).name.endswith(".tmp") and len(seen) < readers:
            folder_module.recover(dest)
            seen.append(version_of(dest))
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    write_version(dest, "new")
    assert seen == ["old"] * readers and version_of(dest) == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_reader_that_comes_too_late_to_take_it_back(tmp_path, monkeypatch):
    dest, rename = tmp_path / "data", os.rename
    write_version(dest, "old")
    dest.rename(tmp_path / ".data.11111111.old")

    def late(source, target):  # the writer was faster
        if target == dest and not dest.exists():
            write_version(tmp_path / "new", "new")
            rename(tmp_path / "new", dest)
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    folder_module.recover(dest)
    assert version_of(dest) == "new"


def test_what_a_killed_process_was_writing_goes_and_what_a_living_one_writes_stays(tmp_path):
    dest = tmp_path / "data"
    (tmp_path / ".data.00000000.tmp").mkdir()
    (tmp_path / ".data.00000000.tmp" / "train.bin").write_text("half")
    (tmp_path / ".other.0.tmp").mkdir()
    (tmp_path / ".other.0.tmp" / "train.bin").write_text("of another output")
    with folder_module.staged_folder(dest) as living:
        (living / "meta.json").write_text('{"format": "tsm-data", "files": [], "v": "slow"}')
        write_version(dest, "fast")
        assert living.exists() and version_of(dest) == "fast"
    assert version_of(dest) == "slow"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.0.tmp", "data"]


def test_what_only_looks_like_its_own_stays(tmp_path):
    """Besides `data`, there are temporary files of data.v2 and of data.onnx, and a user's notes, which all
    stay."""
    others = [".data.v2.deadbeef.old", ".data.onnx.ab12cd34.tmp", ".data.notes.tmp"]
    for name in others:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("somebody's")
    (tmp_path / ".data.deadbeef.tmp").write_text("a file of that name")
    dest = tmp_path / "data"
    folder_module.recover(dest)
    assert not dest.exists()
    write_version(dest, "new")
    assert version_of(dest) == "new"
    assert {path.name for path in tmp_path.iterdir()} == {*others, ".data.deadbeef.tmp", "data"}
