"""Sequential MNIST from small idx files made here, and from the real ones if available."""

import gzip
import lzma
import struct

import numpy as np
import pytest
import torch

from elsewhere import data_folder
from tsm.plugin.data.meta import Meta

OPENERS = {"": open, ".gz": gzip.open, ".xz": lzma.open}


@pytest.fixture
def sets():
    rng = np.random.Generator(np.random.PCG64(0))
    out = {}
    for stem, count in (("train", 60), ("t10k", 12)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        out[stem] = images, np.arange(count, dtype=np.uint8) % 10
    return out


def write_idx(folder, sets, suffix=""):
    for stem, (images, labels) in sets.items():
        for kind, array in (("images", images), ("labels", labels)):
            name = f"{stem}-{kind}-idx{array.ndim}-ubyte{suffix}"
            header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            with OPENERS[suffix](folder / name, "wb") as f:
                f.write(header + array.tobytes())


@pytest.mark.parametrize("suffix", OPENERS)
def test_reads_idx_files(make, tmp_path, sets, suffix):
    write_idx(tmp_path, sets, suffix)
    task = make("smnist", data=str(tmp_path), batch_size=7)
    assert [task.rows(s) for s in ("train", "valid", "test")] == [50, 10, 12]
    assert task.model_arguments() == {"input_size": 1, "num_classes": 10}
    test = list(task.eval_batches("test"))
    x = torch.cat([b.x for b in test])
    images, labels = sets["t10k"]
    assert x.shape == (12, 784, 1)
    assert np.array_equal(x.numpy()[..., 0], images.reshape(12, 784).astype(np.float32) / 255)
    assert torch.cat([b.target for b in test]).tolist() == labels.tolist()


def test_train_and_valid_are_the_training_images(make, tmp_path, sets):
    write_idx(tmp_path, sets)
    found = {}
    for seed in (1, 2):
        task = make("smnist", data=str(tmp_path), batch_size=8, data_seed=seed)
        train = torch.cat([b.x for b in task.train_batches(1)])
        valid = torch.cat([b.x for b in task.eval_batches("valid")])
        rows = [
            tuple(np.rint(r * 255).astype(int)) for r in torch.cat([train, valid])[..., 0].numpy()
        ]
        assert sorted(rows) == sorted(map(tuple, sets["train"][0].reshape(60, -1).tolist()))
        found[seed] = set(rows[50:])
    assert found[1] != found[2]


def test_permuted_pixels(make, tmp_path, sets):
    write_idx(tmp_path, sets)
    plain = next(make("smnist", data=str(tmp_path)).eval_batches("test"))
    task = make("psmnist", data=str(tmp_path))
    mixed = next(task.eval_batches("test"))
    assert sorted(task.order.tolist()) == list(range(784))
    assert task.order.tolist() != list(range(784))
    assert torch.equal(mixed.x, plain.x[:, torch.from_numpy(task.order)])
    same = make("smnist", data=str(tmp_path), permute=1, seed=9)
    assert same.order.tolist() == task.order.tolist()
    assert make("psmnist", data=str(tmp_path), permute=2).order.tolist() != task.order.tolist()
    assert task.order[:8].tolist() == [435, 220, 775, 507, 239, 270, 688, 4]


def test_reads_what_preprocess_writes(make, tmp_path, sets):
    splits = {
        "train": tuple(part[:50] for part in sets["train"]),
        "valid": tuple(part[50:] for part in sets["train"]),
        "test": sets["t10k"],
    }
    for split, (images, labels) in splits.items():
        np.save(tmp_path / f"{split}.images.npy", images)
        np.save(tmp_path / f"{split}.labels.npy", labels)
    Meta("images", "mnist", None, {s: {} for s in splits}, "by hand", 1, num_classes=10).save(
        tmp_path
    )
    task = make("smnist", data=str(tmp_path), batch_size=5)
    valid = torch.cat([b.x for b in task.eval_batches("valid")])
    assert np.array_equal(
        np.rint(valid.numpy().reshape(10, 28, 28) * 255), splits["valid"][0].astype(np.float32)
    )


def test_an_epoch_is_every_image_once_and_ranks_share(make, tmp_path, sets):
    write_idx(tmp_path, sets)
    settings = {"data": str(tmp_path), "batch_size": 8}
    whole = list(make("smnist", **settings).train_batches(1))
    ranks = [list(make("smnist", r, 2, **settings).train_batches(1)) for r in range(2)]
    for batch, *parts in zip(whole, *ranks, strict=True):
        assert torch.equal(batch.x, torch.cat([p.x for p in parts]))
    again = list(make("smnist", **settings).train_batches(1, 3))
    assert all(torch.equal(a.x, b.x) for a, b in zip(again, whole[3:], strict=True))
    other = list(make("smnist", **settings).train_batches(2))
    assert not torch.equal(other[0].x, whole[0].x)


def test_bad_folders_are_named(make, tmp_path, sets):
    with pytest.raises(ValueError, match="data is empty"):
        make("smnist")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        make("smnist", data=str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="MNIST train images"):
        make("smnist", data=str(tmp_path))
    write_idx(tmp_path, sets)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="t10k-images"):
        make("smnist", data=str(tmp_path))


@pytest.mark.data
def test_real_mnist(make):
    folder = data_folder()
    if not list(folder.glob("*train-images*")):
        pytest.skip(f"no MNIST idx files in {folder}; set TSM_DATA to a folder that has them")
    task = make("psmnist", data=str(folder))
    assert [task.rows(s) for s in ("train", "valid", "test")] == [50_000, 10_000, 10_000]
    assert task.batches_per_epoch(1) == 500
    train = task._sets["train"][0]
    assert train.mean() / 255 == pytest.approx(0.1307, abs=0.001)
    counts = np.bincount(task._sets["test"][1], minlength=10)
    assert counts.tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    batch = next(task.train_batches(1))
    assert batch.x.shape == (100, 784, 1) and batch.x.max() == 1 and batch.x.min() == 0
