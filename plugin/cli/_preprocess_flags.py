"""The flags of tsm-preprocess, and which of them can be combined."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..command.command import Parser, UsageError
from ..command.flags import add_encoding_flags, column_names
from ..data.build.shares import parse_shares
from ..data.build.sources import DATASETS, TEXT_DATASETS
from ..data.files import encoding_of
from ..data.meta import SPLITS
from ..data.readers.table import kind_of
from ..data.subword import MODEL_TYPES

TABLES = ("csv", "tsv", "jsonl")
NUMBERS = (
    "sequence_column",
    "value_columns",
    "dt_column",
    "time_column",
    "target_columns",
    "per_step",
)
TOKENIZERS = ("word", "char", "char_ptb", "review")
OWN = (
    "split",
    "tokenizer",
    "srcdict",
    "encoding",
    "encoding_errors",
    "text_column",
    "label_column",
    "format",
)
SEPARATED = ("delimiter", "no_quotes", "no_header")


def build_parser() -> argparse.ArgumentParser:
    """All flags. Flags that fairseq-preprocess also has use the same names."""
    p = Parser(
        prog="tsm-preprocess",
        usage="tsm-preprocess --trainpref FILE --split 0.8,0.1,0.1 --destdir DIR [flags]",
        description="Turn your own data, or a known data set, into a folder to train on (docs/data.md).",
        allow_abbrev=False,
    )
    p.add_argument("--destdir", type=Path, required=True, help="folder to create")
    _known(p)
    _own(p)
    _tables(p)
    _numbers(p)
    _dictionary(p)
    run = p.add_argument_group("run")
    run.add_argument(
        "--overwrite", action="store_true", help="replace --destdir if it is an earlier output"
    )
    run.add_argument(
        "--add-checksums",
        action="store_true",
        help="only add checksums.txt to --destdir, which an earlier version made",
    )
    run.add_argument(
        "--workers", type=int, default=1, metavar="N",
        help="worker processes; the output does not depend on their number",
    )  # fmt: skip
    run.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of random splits (default 0)"
    )
    return p


def _known(p: argparse.ArgumentParser) -> None:
    known = p.add_argument_group("a known data set")
    known.add_argument("--dataset", choices=DATASETS, help="which one")
    known.add_argument(
        "--from", dest="root", type=Path, metavar="DIR", help="folder or archive with its files"
    )
    known.add_argument(
        "--allow-differences",
        action="store_true",
        help="continue if the data does not have the known counts",
    )
    known.add_argument(
        "--glove", type=Path, metavar="DIR", help="imdb: where GloVe is (default: --from)"
    )
    known.add_argument("--no-glove", action="store_true", help="imdb: no word vectors")


def _own(p: argparse.ArgumentParser) -> None:
    own = p.add_argument_group("your own files (plain, .xz, .gz, .bz2)")
    for split in SPLITS:
        own.add_argument(f"--{split}pref", type=Path, metavar="FILE", help=f"the {split} split")
    own.add_argument(
        "--split", metavar="A,B,C",
        help="split --trainpref into train, valid and test, e.g. 0.8,0.1,0.1: table rows at random (--seed), "
        "stratified by label; lines of plain text in order",
    )  # fmt: skip
    own.add_argument(
        "--format",
        choices=("text", *TABLES, "npz"),
        help="default: chosen by the file name (.csv, .tsv, .jsonl, .npz)",
    )
    add_encoding_flags(own)
    own.add_argument(
        "--tokenizer", choices=TOKENIZERS, help="default: word, or review for labelled texts"
    )
    own.add_argument(
        "--srcdict", type=Path, metavar="FILE", help="use this dict.txt instead of a new dictionary"
    )
    # fairseq's flag for LMs
    own.add_argument("--only-source", action="store_true", help=argparse.SUPPRESS)


def _tables(p: argparse.ArgumentParser) -> None:
    t = p.add_argument_group("labelled texts from a table")
    t.add_argument("--text-column", metavar="NAME", help="default: text")
    t.add_argument("--label-column", metavar="NAME", help="default: label")
    t.add_argument("--delimiter", metavar="C", help="default: comma, or tab for .tsv")
    t.add_argument(
        "--no-quotes", action="store_true", help="treat double quotes as plain characters"
    )
    t.add_argument(
        "--no-header",
        action="store_true",
        help="there is no header row; columns are called 1, 2, ...",
    )
    t.add_argument(
        "--hf-dataset",
        type=Path,
        metavar="DIR",
        help="folder written by save_to_disk of Hugging Face datasets",
    )


def _numbers(p: argparse.ArgumentParser) -> None:
    n = p.add_argument_group("sequences of numbers: .npz, or a table with one row per step")
    n.add_argument("--sequence-column", metavar="NAME", help="the sequence that a row belongs to")
    n.add_argument("--value-columns", metavar="A,B,...", help="the inputs (default: all others)")
    n.add_argument("--dt-column", metavar="NAME", help="time since the previous row")
    n.add_argument("--time-column", metavar="NAME", help="time of a row, instead of its dt")
    n.add_argument(
        "--target-columns", metavar="A,B,...", help="numbers to predict, instead of a label"
    )
    n.add_argument("--per-step", action="store_true", help="one target per step")


def _dictionary(p: argparse.ArgumentParser) -> None:
    words = p.add_argument_group("dictionary")
    words.add_argument(
        "--threshold", "--thresholdsrc", type=int, default=0, metavar="N",
        help="rarer symbols become <unk>",
    )  # fmt: skip
    words.add_argument(
        "--nwords", "--nwordssrc", type=int, default=0, metavar="N",
        help="maximum size of the dictionary",
    )  # fmt: skip
    words.add_argument("--bpe", choices=("sentencepiece",), help="cut words into pieces")
    words.add_argument("--vocab-size", type=int, metavar="N", help="number of pieces to learn")
    words.add_argument(
        "--sentencepiece-type", choices=MODEL_TYPES, default="unigram", help="default: unigram"
    )
    words.add_argument(
        "--sentencepiece-model",
        type=Path,
        metavar="FILE",
        help="cut words into the pieces of this model instead of learning one",
    )


def check_flags(args: argparse.Namespace) -> None:
    """Raises an error for flags that cannot be combined. --sentencepiece-model alone means that it is used."""
    if args.sentencepiece_model and not args.bpe:
        args.bpe = "sentencepiece"
    prefixes = [s for s in SPLITS if getattr(args, f"{s}pref") is not None]
    if bool(args.dataset) + bool(prefixes) + bool(args.hf_dataset) != 1:
        raise UsageError(
            "give one of --dataset NAME --from DIR, --trainpref FILE (and --validpref, --testpref, "
            "or --split), or --hf-dataset DIR"
        )
    if args.dataset and args.root is None:
        raise UsageError(f"--dataset {args.dataset} needs --from DIR")
    if not args.dataset and args.root is not None:
        raise UsageError("--from requires --dataset")
    for flag in (*OWN, *SEPARATED, *NUMBERS):
        if args.dataset and getattr(args, flag):
            raise UsageError(
                f"--{flag.replace('_', '-')} is for your own data and cannot be combined "
                f"with --dataset {args.dataset}"
            )
    if args.dataset != "imdb" and (args.glove or args.no_glove):
        raise UsageError("--glove and --no-glove require --dataset imdb")
    _check_own(args, prefixes)
    _check_dictionary(args, prefixes)


def _check_own(args: argparse.Namespace, prefixes: list[str]) -> None:
    if args.split:
        if prefixes not in ([], ["train"]):
            raise UsageError(
                "--split divides --trainpref, so it cannot be combined with --validpref or --testpref"
            )
        parse_shares(args.split)
    encoding_of(args.encoding)
    kind = table_kind(args)
    _check_numbers(args, kind)
    for flag in ("text_column", "label_column", *SEPARATED):
        if getattr(args, flag) and kind in (None, "npz") and not args.dataset:
            raise UsageError(
                f"--{flag.replace('_', '-')} requires a table; accepted: .csv, .tsv and .jsonl files, "
                "or --format"
            )


def _check_numbers(args: argparse.Namespace, kind: str | None) -> None:
    numbers = args.sequence_column or kind == "npz"
    for flag in NUMBERS:
        if getattr(args, flag) and not numbers and not args.dataset:
            raise UsageError(f"--{flag.replace('_', '-')} requires --sequence-column or .npz files")
        if getattr(args, flag) and kind in ("npz", None, "hf") and flag != "per_step":
            raise UsageError(f"--{flag.replace('_', '-')} requires .csv, .tsv or .jsonl files")
    if numbers and (args.tokenizer or args.bpe or args.srcdict or args.text_column):
        raise UsageError("--tokenizer, --bpe, --srcdict and --text-column are for texts")
    if kind in TABLES and numbers and bool(args.label_column) == bool(args.target_columns):
        both = " and not both" if args.label_column else ""
        raise UsageError(
            f"give --label-column NAME (classes) or --target-columns A,B (numbers){both}"
        )
    if args.dt_column and args.time_column:
        raise UsageError("--dt-column and --time-column were both given; accepted: one of them")
    for flag, given in (
        ("--value-columns", args.value_columns),
        ("--target-columns", args.target_columns),
    ):
        names = column_names(given)
        if len(set(names)) < len(names):
            raise UsageError(f"{flag} is {given!r}; accepted: every column once")


def _check_dictionary(args: argparse.Namespace, prefixes: list[str]) -> None:
    known = args.srcdict or args.sentencepiece_model or args.sequence_column
    if prefixes and "train" not in prefixes and not known and table_kind(args) != "npz":
        raise UsageError(
            "--trainpref is needed to make the dictionary (or give one: --srcdict FILE)"
        )
    if args.dataset and args.dataset not in TEXT_DATASETS and args.bpe:
        raise UsageError(f"--bpe cannot be combined with --dataset {args.dataset}")
    if not args.bpe and args.vocab_size is not None:
        raise UsageError("--vocab-size requires --bpe sentencepiece")
    if args.bpe and (args.vocab_size is None) == (args.sentencepiece_model is None):
        raise UsageError(
            "--bpe sentencepiece needs either --vocab-size N or --sentencepiece-model FILE"
        )
    if args.srcdict and (args.bpe or args.threshold or args.nwords):
        raise UsageError(
            "--srcdict is used unchanged; it cannot be combined with --bpe, --threshold or --nwords"
        )


def table_kind(args: argparse.Namespace) -> str | None:
    """csv, tsv, jsonl, npz or hf; None for plain text and for --dataset."""
    if args.hf_dataset:
        return "hf"
    if args.format:
        return None if args.format == "text" else str(args.format)
    files = [path for s in SPLITS if (path := getattr(args, f"{s}pref")) is not None]
    kinds = {kind_of(path) for path in files}
    if len(kinds) > 1:
        raise UsageError(
            f"{' and '.join(str(path) for path in files)} are files of several kinds; accepted: one, "
            "or --format for all"
        )
    return kinds.pop() if kinds else None
