"""IMDB large movie reviews (aclImdb v1.0): 12,500 positive and 12,500 negative reviews for training, and as
many for testing.

The reviews are read from imdb.tsv (`split TAB label TAB id TAB rating TAB text`), the folder aclImdb/, or
aclImdb_v1.tar.gz. All give the same reviews in the same order (train before test, positive before negative, by
id).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...common.bounded import read_at_most
from ...common.rng import permutation
from ..files import DAMAGE, find, list_files, open_tar, read_lines, tar_members

GROUPS = (("train", 1), ("train", 0), ("test", 1), ("test", 0))
PER_GROUP = 12_500
MAX_REVIEW = 1 << 20  # bytes; the longest has 14,000
MAX_REVIEWS = 1_000_000
_MEMBER = re.compile(r"(?:.*/)?(train|test)/(pos|neg)/(\d{1,18})_(\d+)\.txt")


@dataclass(frozen=True)
class Review:
    """One review: split is train or test, label 1 positive or 0 negative."""

    split: str
    label: int
    id: int
    text: str


def read_reviews(root: Path) -> tuple[list[Review], str]:
    """All labelled reviews in order, and the name of their source."""
    table = find(root, ("imdb.tsv",))
    if table is not None:
        reviews, name = list(_from_table(table)), table.name
    else:
        folder = next((f for f in (root / "aclImdb", root) if (f / "train" / "pos").is_dir()), None)
        if folder is not None:
            reviews, name = list(_from_folder(folder)), folder.name
        else:
            archive = _archive(root)
            reviews, name = list(_from_archive(archive)), archive.name
    order = {group: i for i, group in enumerate(GROUPS)}
    reviews.sort(key=lambda r: (order[r.split, r.label], r.id))
    return reviews, name


def group_differences(reviews: list[Review]) -> list[str]:
    """One phrase for each of the four groups that does not have 12,500 reviews."""
    sizes = Counter((r.split, r.label) for r in reviews)
    return [
        f"{split}/{'pos' if label else 'neg'} has {sizes[split, label]:,} reviews instead of "
        f"{PER_GROUP:,}"
        for split, label in GROUPS
        if sizes[split, label] != PER_GROUP
    ]


def split_reviews(reviews: list[Review], seed: int) -> dict[str, list[Review]]:
    """Moves 10% of the training reviews, chosen by seed, to valid; the order is kept."""
    training = [r for r in reviews if r.split == "train"]
    held_out = set(permutation(len(training), seed, "imdb-valid")[: len(training) // 10].tolist())
    return {
        "train": [r for i, r in enumerate(training) if i not in held_out],
        "valid": [r for i, r in enumerate(training) if i in held_out],
        "test": [r for r in reviews if r.split == "test"],
    }


def _from_table(entry) -> Iterator[Review]:
    for number, line in enumerate(read_lines(entry), 1):
        fields = line.split("\t", 4)
        where = f"{entry.name}, line {number}"
        if len(fields) != 5:
            raise ValueError(
                f"{where}: {len(fields)} fields; accepted: split, label, id, rating, text between "
                "tabs"
            )
        split, label, number_text, _, text = fields
        if split not in ("train", "test"):
            raise ValueError(f"{where}: split is {split!r}; accepted: train, test")
        if label not in ("0", "1"):
            raise ValueError(f"{where}: label is {label!r}; accepted: 0 (negative), 1 (positive)")
        if not number_text.isascii() or not number_text.isdigit() or len(number_text) > 18:
            raise ValueError(f"{where}: id is {number_text!r}; accepted: a number")
        if len(text) > MAX_REVIEW:
            raise ValueError(f"{where}: {len(text):,} characters; accepted: {MAX_REVIEW:,}")
        if number > MAX_REVIEWS:
            raise ValueError(f"{where}: accepted: at most {MAX_REVIEWS:,} reviews")
        yield Review(split, int(label), int(number_text), text)


def _from_folder(folder: Path) -> Iterator[Review]:
    for split, label in GROUPS:
        for path in (folder / split / ("pos" if label else "neg")).glob("*.txt"):
            with path.open("rb") as f:
                yield _review(path.as_posix(), read_at_most(f, MAX_REVIEW, str(path)))


def _archive(root: Path) -> Path:
    for path in list_files(root):
        if path.name.startswith("aclImdb") and path.name.endswith(
            (".tar.gz", ".tgz", ".tar", ".tar.xz")
        ):
            return path
    raise FileNotFoundError(
        f"IMDB not found under {root}; looked for imdb.tsv(.xz), aclImdb/train/pos, "
        "aclImdb_v1.tar.gz"
    )


def _from_archive(path: Path) -> Iterator[Review]:
    try:
        with open_tar(path) as tar:
            for member in tar_members(tar, path):
                content = tar.extractfile(member) if _MEMBER.fullmatch(member.name) else None
                if content is not None:
                    name = f"{path.name}:{member.name}"
                    yield _review(member.name, read_at_most(content, MAX_REVIEW, name))
    except DAMAGE as e:
        raise ValueError(f"{path} is damaged or cut short ({e or type(e).__name__})") from e


def _review(name: str, raw: bytearray) -> Review:
    match = _MEMBER.fullmatch(name)
    if match is None:
        raise ValueError(f"{name}: accepted: (train|test)/(pos|neg)/ID_RATING.txt")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ValueError(f"{name}: not UTF-8 at byte {e.start}") from e
    return Review(match[1], int(match[2] == "pos"), int(match[3]), text)
