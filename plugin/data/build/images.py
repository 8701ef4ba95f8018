"""An image set -> a folder of plain arrays: {train,valid,test}.images.npy uint8 [N, ...],
{..}.labels.npy uint8 [N], meta.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..datasets.cifar10 import read_cifar10, split_cifar10
from ..datasets.images import Split
from ..datasets.mnist import read_mnist, split_mnist
from ..meta import Meta
from .options import Options
from .reviews import save_array

Read = Callable[[Path], tuple[dict[str, Split], list[str], dict[str, str]]]
Cut = Callable[[dict[str, Split], int], dict[str, Split]]

# How the official files are read and split, and what share of the training images becomes the validation split.
IMAGE_DATASETS: dict[str, tuple[Read, Cut, str]] = {
    "mnist": (read_mnist, split_mnist, "one in six"),
    "cifar-10": (read_cifar10, split_cifar10, "one in ten"),
}


def build_images(dataset: str, root: Path, out: Path, options: Options) -> Meta:
    """Write everything into the folder `out`."""
    read, cut, share = IMAGE_DATASETS[dataset]
    sets, differences, names = read(root)
    options.accept(dataset, differences)
    splits = {}
    for split, (images, labels) in cut(sets, options.seed).items():
        if not len(labels):
            raise ValueError(f"split {split} is empty; accepted: at least one image")
        files = [out / f"{split}.images.npy", out / f"{split}.labels.npy"]
        save_array(files[0], images)
        save_array(files[1], labels)
        splits[split] = {
            "lines": len(labels),
            "types": len(set(labels.tolist())),
            "bytes": sum(f.stat().st_size for f in files),
        }
    return Meta(
        task="images",
        dataset=dataset,
        tokenizer=None,
        splits=splits,
        split_rule=f"official test; {share} of the official training images is valid, "
        f"by seed {options.seed}",
        seed=options.seed,
        num_classes=10,
        sources=names,
        differences=differences,
    )
