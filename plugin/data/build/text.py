"""Text -> a folder for language modeling, or for classification if the pieces have labels: dict.txt,
{train,valid,test}.{bin,idx}, meta.json, and sentencepiece.model with --bpe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...common.atomic import write_bytes
from ..datasets.common import TextSource, count_differences
from ..meta import Meta, SplitStats
from ..subword import MODEL, SentencePieceTokenizer, train_sentencepiece
from ..tokenizers import Tokenizer
from ..vocab import DICT, UNK, Vocab
from .options import Options
from .pipeline import binarize, count_symbols


@dataclass(frozen=True)
class Subword:
    """--bpe sentencepiece: learn vocab_size pieces, or use an existing model."""

    vocab_size: int = 0
    model_type: str = "unigram"
    model: bytes | None = None


def build_text(
    source: TextSource,
    out: Path,
    options: Options,
    subword: Subword | None = None,
    vocab: Vocab | None = None,
) -> Meta:
    """Writes everything into the folder `out`. A given `vocab` is used unchanged."""
    tokenizer: Tokenizer = source.tokenizer
    if "train" not in source.splits and vocab is None and (subword is None or not subword.model):
        raise ValueError(
            "there is no train split to make the dictionary from; accepted: --srcdict with that of the model"
        )
    plain = subword is None and vocab is None and not options.threshold and not options.nwords
    options.accept(source.dataset or "the text", source.differences)
    if subword is not None:
        tokenizer = _sentencepiece(source, subword, options)
        write_bytes(out / MODEL, tokenizer.model)
        pieces = tokenizer.vocab_symbols()
        vocab = Vocab(pieces, [0] * len(pieces))
    elif vocab is None:
        counts = count_symbols(
            source.splits["train"](), tokenizer, options.workers, options.progress
        )
        if not counts:
            raise ValueError("split train is empty; accepted: at least one token")
        keep = () if tokenizer.end is None else (tokenizer.end,)
        vocab = Vocab.build(counts, threshold=options.threshold, nwords=options.nwords, keep=keep)
    if source.classes is not None:
        vocab = vocab.with_unk()  # new texts will contain unknown words
    stats: dict[str, SplitStats] = {}
    notes = list(source.notes)
    for split, pieces_of in source.splits.items():
        stats[split], ids = binarize(
            pieces_of(),
            tokenizer,
            vocab,
            out / split,
            workers=options.workers,
            labels=source.labels.get(split),
            progress=options.progress,
        )
        if split == "train" and subword is not None:
            vocab = Vocab(vocab.symbols, ids.tolist())
        if vocab.unk is None and stats[split].unk:
            notes.append(
                f"{split} has {stats[split].unk:,} tokens that are not in the dictionary: {UNK} "
                "added as its last id; train has none (--threshold or --nwords would replace rare ones by it)"
            )
            vocab = vocab.with_unk()
    vocab.save(out / DICT)
    differences = source.differences + _differences(source, stats, vocab, plain)
    options.accept(source.dataset or "the text", differences)
    labelled = source.classes is not None
    return Meta(
        task="classification" if labelled else "language_modeling",
        dataset=source.dataset,
        tokenizer=tokenizer.config(),
        splits={s: v.as_dict() for s, v in stats.items()},
        split_rule=source.rule,
        seed=options.seed,
        vocab_size=len(vocab),
        unk_id=vocab.unk,
        eos_id=vocab.eos,
        pad_id=vocab.pad_id if labelled else None,
        num_classes=None if source.classes is None else len(source.classes),
        labels=source.classes,
        threshold=options.threshold,
        nwords=options.nwords,
        sources=source.files,
        differences=differences,
        notes=notes,
    )


def _sentencepiece(
    source: TextSource, subword: Subword, options: Options
) -> SentencePieceTokenizer:
    if source.tokenizer.unit != "line" or source.tokenizer.kind != "word":
        raise ValueError(
            f"--bpe sentencepiece cuts words; {source.dataset or 'this text'} is made of characters"
        )
    if options.threshold or options.nwords:
        raise ValueError(
            "--threshold and --nwords cannot be combined with --bpe; accepted: --vocab-size"
        )
    model = subword.model
    if model is None:
        model = train_sentencepiece(
            source.splits["train"](), subword.vocab_size, subword.model_type, options.seed
        )
    return SentencePieceTokenizer(model)


def _differences(
    source: TextSource, stats: dict[str, SplitStats], vocab: Vocab, plain: bool
) -> list[str]:
    out = count_differences(source.expected, stats)
    if plain and source.expected_types is not None and len(vocab) != source.expected_types:
        out.append(f"the dictionary has {len(vocab):,} types instead of {source.expected_types:,}")
    return out
