"""MNIST -> a folder of plain arrays: {train,valid,test}.images.npy uint8 [N, 28, 28],
{..}.labels.npy uint8 [N], meta.json."""

from __future__ import annotations

from pathlib import Path

from ..datasets.mnist import read_mnist, split_mnist
from ..meta import Meta
from .options import Options
from .reviews import save_array


def build_images(root: Path, out: Path, options: Options) -> Meta:
    """Write everything into the folder `out`."""
    sets, differences, names = read_mnist(root)
    options.accept("mnist", differences)
    splits = {}
    for split, (images, labels) in split_mnist(sets, options.seed).items():
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
        dataset="mnist",
        tokenizer=None,
        splits=splits,
        split_rule="official test; one in six of the official training images is valid, "
        f"by seed {options.seed}",
        seed=options.seed,
        num_classes=10,
        sources=names,
        differences=differences,
    )
