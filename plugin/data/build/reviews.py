"""IMDB -> a folder for classification: dict.txt, {train,valid,test}.{bin,idx} with labels,
embeddings.npy, meta.json.

Reviews are stored in full (ragged). They are truncated or padded to 400 words when batches are made. The
dictionary holds the 25,000 most frequent words of all 25,000 training reviews, then <unk> (id
25,000); id 25,001 is padding, a row of zeros in embeddings.npy.
"""

from __future__ import annotations

from pathlib import Path

from ...common.atomic import atomic_file
from ...common.lazy import np
from ..datasets.glove import glove_matrix
from ..datasets.imdb import Review, group_differences, read_reviews, split_reviews
from ..meta import Meta, SplitStats
from ..staged_folder import EMBEDDINGS
from ..tokenizers import ReviewTokenizer
from ..vocab import DICT, Vocab
from .options import Options
from .pipeline import binarize, count_symbols

NWORDS = 25_001
LABELS = ("negative", "positive")


def build_reviews(root: Path, out: Path, options: Options, glove: Path | None) -> Meta:
    """Writes everything into the folder `out`. `glove`: where the vectors are (None: no vectors)."""
    reviews, name = read_reviews(root)
    differences = group_differences(reviews)
    options.accept("imdb", differences)
    tokenizer = ReviewTokenizer()
    _check_reviews(reviews, tokenizer, name)
    training = (r.text for r in reviews if r.split == "train")
    counts = count_symbols(training, tokenizer, options.workers, options.progress)
    nwords = options.nwords or NWORDS
    vocab = Vocab.build(counts, threshold=options.threshold, nwords=nwords).with_unk()
    embeddings = None if glove is None else _embeddings(glove, vocab, out, options)
    stats: dict[str, SplitStats] = {}
    for split, part in split_reviews(reviews, options.seed).items():
        labels = [r.label for r in part]
        texts = (r.text for r in part)
        stats[split], _ = binarize(
            texts,
            tokenizer,
            vocab,
            out / split,
            workers=options.workers,
            labels=labels,
            progress=options.progress,
        )
    vocab.save(out / DICT)
    splits = {s: v.as_dict() for s, v in stats.items()}
    held_out, total = stats["valid"].lines, stats["train"].lines + stats["valid"].lines
    return Meta(
        task="classification",
        dataset="imdb",
        tokenizer=tokenizer.config(),
        splits=splits,
        split_rule=f"official train and test; {held_out:,} of the {total:,} training reviews "
        f"are valid, by seed {options.seed}",
        seed=options.seed,
        vocab_size=len(vocab),
        unk_id=vocab.unk,
        pad_id=vocab.pad_id,
        num_classes=len(LABELS),
        labels=list(LABELS),
        threshold=options.threshold,
        nwords=nwords,
        embeddings=embeddings,
        sources={"reviews": name},
        differences=differences,
        notes=[
            "the dictionary counts the words of train and valid together (all official training "
            "reviews)"
        ],
    )


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file, atomically."""
    with atomic_file(path) as f:
        np.save(f, array, allow_pickle=False)


def _embeddings(glove: Path, vocab: Vocab, out: Path, options: Options) -> dict[str, object]:
    matrix, found, name = glove_matrix(glove, vocab, options.seed)
    save_array(out / EMBEDDINGS, matrix)
    return {
        "file": EMBEDDINGS,
        "rows": len(matrix),
        "width": matrix.shape[1],
        "found": found,
        "source": name,
    }


def _check_reviews(reviews: list[Review], tokenizer: ReviewTokenizer, name: str) -> None:
    """Raises an error for a review without words, which has no last step to read."""
    for r in reviews:
        if tokenizer.is_empty(r.text):
            raise ValueError(
                f"{name}: review {r.split}/{'pos' if r.label else 'neg'}/{r.id} has no word"
            )
