"""Sequential CIFAR-10 from a small file made in the official binary format."""

import numpy as np
import pytest
import torch

from tsm.plugin.data.datasets.cifar10 import FILES
from tsm.plugin.reproduce.stand_in import make_stand_in

LABEL = 7
IMAGE = np.arange(32 * 32 * 3).reshape(32, 32, 3) % 256  # row, column, colour


@pytest.fixture
def folder(tmp_path):
    """Two images per file; the first of the test set is IMAGE."""
    planes = IMAGE.astype(np.uint8).transpose(2, 0, 1).tobytes()
    other = bytes([1]) + bytes(len(planes))
    for names in FILES.values():
        for name in names:
            (tmp_path / name).write_bytes(bytes([LABEL]) + planes + other)
    return tmp_path


def test_a_step_is_a_pixel_of_three_colours(make, folder):
    task = make("scifar", data=str(folder), batch_size=2)
    assert [task.rows(split) for split in ("train", "valid", "test")] == [9, 1, 2]
    assert task.model_arguments() == {"input_size": 3, "num_classes": 10}
    batch = next(task.eval_batches("test"))
    wanted = torch.from_numpy(IMAGE.reshape(1024, 3)).float() / 255
    assert torch.equal(batch.x[0], wanted) and batch.target.tolist() == [LABEL, 1]


def test_permuted_pixels_keep_their_colours(make, folder):
    plain = next(make("scifar", data=str(folder)).eval_batches("test"))
    task = make("scifar", data=str(folder), permute=3)
    mixed = next(task.eval_batches("test"))
    assert sorted(task.order.tolist()) == list(range(1024))
    assert torch.equal(mixed.x, plain.x[:, torch.from_numpy(task.order)])


def test_images_of_another_size_are_refused(make, tmp_path):
    make_stand_in("mnist", tmp_path / "mnist")
    with pytest.raises(ValueError, match=r"28, 28\); accepted: \[N, 32, 32, 3\]"):
        make("scifar", data=str(tmp_path / "mnist"))
