r"""tsm-preprocess: writes dict.txt and binarized splits of your data to --destdir, all or nothing.

    tsm-preprocess --dataset ptb-char --from DIR --destdir data/ptb-char
    tsm-preprocess --trainpref a.txt --validpref b.txt --tokenizer word --threshold 3 --destdir out
    tsm-preprocess --trainpref mine.csv --split 0.8,0.1,0.1 --text-column review --label-column stars \
                   --destdir out                                   labelled texts: csv, tsv, jsonl
    tsm-preprocess --trainpref a.txt --bpe sentencepiece --vocab-size 8000 --workers 4 --destdir out
    tsm-preprocess --add-checksums --destdir data/ptb              for a folder made by an earlier version

Exit codes: 0 success, 2 bad input (one sentence on stderr, nothing written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..command.bar import terminal_progress
from ..command.command import INTERRUPTED, UsageError, command, fail, sentence
from ..command.flags import column_names, strictly
from ..common.bounded import read_at_most
from ..data.build.images import IMAGE_DATASETS, build_images
from ..data.build.labelled import LabelledTexts, labelled_source
from ..data.build.options import Options
from ..data.build.prepare import finish
from ..data.build.reviews import build_reviews
from ..data.build.series import build_series
from ..data.build.shares import cut_text, parse_shares
from ..data.build.sources import TEXT_DATASETS, user_text
from ..data.build.summary import summary_table
from ..data.build.text import Subword, build_text
from ..data.checksums import add_checksums
from ..data.datasets.common import TextSource
from ..data.files import Entry, encoding_of
from ..data.meta import SPLITS, Meta
from ..data.readers.hugging_face import open_datasets
from ..data.readers.numbers import Columns, SeriesArrays, SeriesFile, SeriesTable
from ..data.readers.table import FileTable, Table
from ..data.staged_folder import staged_folder
from ..data.subword import MAX_MODEL
from ..data.tokenizers import plain_tokenizer
from ..data.vocab import Vocab
from ._preprocess_flags import build_parser, check_flags, table_kind

TRAINING = {
    "language_modeling": "--arch plstm_lm",
    "classification": "--arch plstm_classifier",
    "series": "--arch plstm_classifier",
    "series_steps": "--arch plstm_tagger",
}
"""Suggested flags of tsm-train for each kind of folder."""


def preprocess(args: argparse.Namespace) -> Meta:
    """Runs the preprocessing; returns the metadata that was written."""
    options = Options(
        args.seed,
        args.workers,
        args.threshold,
        args.nwords,
        args.allow_differences,
        terminal_progress,
    )
    if args.add_checksums:
        return add_checksums(args.destdir)
    check_flags(args)
    with staged_folder(args.destdir, args.overwrite) as stage:
        return finish(build(args, options, stage), stage)


def build(args: argparse.Namespace, options: Options, out: Path) -> Meta:
    """Fills the folder `out` with everything except meta.json."""
    if args.dataset == "imdb":
        return build_reviews(
            args.root, out, options, None if args.no_glove else args.glove or args.root
        )
    if args.dataset in IMAGE_DATASETS:
        return build_images(args.dataset, args.root, out, options)
    if args.sequence_column or table_kind(args) == "npz":
        return own_series(args, options, out)
    known = TEXT_DATASETS.get(args.dataset)
    source = own_source(args, options) if known is None else known(args.root)
    vocab = None if args.srcdict is None else Vocab.load(args.srcdict)
    return build_text(source, out, options, _subword(args), vocab)


def own_source(args: argparse.Namespace, options: Options) -> TextSource:
    """The texts in the user's own files."""
    files = {s: path for s in SPLITS if (path := getattr(args, f"{s}pref")) is not None}
    shares = parse_shares(args.split) if args.split else None
    kind = table_kind(args)
    if kind is None:
        tokenizer = plain_tokenizer(args.tokenizer or "word")
        source = user_text(files, tokenizer, encoding_of(args.encoding, args.encoding_errors))
        return cut_text(source, shares, options.progress)
    tables: dict[str, Table]
    if kind == "hf":
        tables = open_datasets(args.hf_dataset)
    else:
        tables = {s: own_table(args, path, kind) for s, path in files.items()}
    if shares is not None and list(tables) != ["train"]:
        raise UsageError(f"--split: there are splits already ({', '.join(tables)})")
    tokenizer = plain_tokenizer(args.tokenizer or ("word" if args.bpe else "review"))
    columns = args.text_column or "text", args.label_column or "label"
    texts = {s: LabelledTexts(table, *columns, tokenizer) for s, table in tables.items()}
    return labelled_source(texts, options, shares)


def own_table(args: argparse.Namespace, path: Path, kind: str) -> FileTable:
    """Opens a user's file as a table."""
    how = (args.delimiter or "", not args.no_quotes, not args.no_header)
    return FileTable(Entry(path), kind, *how, encoding_of(args.encoding, args.encoding_errors))


def own_series(args: argparse.Namespace, options: Options, out: Path) -> Meta:
    """Writes a data folder from the user's own sequences of numbers."""
    files = {s: path for s in SPLITS if (path := getattr(args, f"{s}pref")) is not None}
    values, targets = map(column_names, (args.value_columns, args.target_columns))
    kind = table_kind(args)
    columns = Columns(
        args.sequence_column,
        values,
        args.dt_column,
        args.time_column,
        args.label_column,
        targets,
        args.per_step,
        chosen=bool(values),
    )
    read: dict[str, SeriesFile]
    if kind is None or kind == "npz":
        read = {s: SeriesArrays(path, args.per_step) for s, path in files.items()}
    else:
        tables = {s: own_table(args, path, kind) for s, path in files.items()}
        first = next(iter(tables.values()))  # train, if it is given
        columns = replace(columns, values=SeriesTable(first, columns).value_columns())
        read = {s: SeriesTable(table, columns) for s, table in tables.items()}
    shares = parse_shares(args.split) if args.split else None
    return build_series(read, out, options, shares, columns)


def _subword(args: argparse.Namespace) -> Subword | None:
    if not args.bpe:
        return None
    if args.sentencepiece_model is None:
        return Subword(args.vocab_size, args.sentencepiece_type)
    with Entry(args.sentencepiece_model).open() as f:
        return Subword(model=bytes(read_at_most(f, MAX_MODEL, str(args.sentencepiece_model))))


def report(meta: Meta, destdir: Path) -> str:
    """The text printed at the end."""
    lines = [f"note: {n}" for n in meta.notes] + [f"differs: {d}" for d in meta.differences]
    lines.append(summary_table(meta))
    if meta.vocab_size is not None:
        lines.append(f"dictionary: {meta.vocab_size:,} types")
    if meta.labels is not None:
        shown = ", ".join(meta.labels[:10]) + ", ..." * (len(meta.labels) > 10)
        lines.append(f"labels: {len(meta.labels):,} ({shown})")
    if meta.series is not None:
        lines += series_lines(meta.series)
    if meta.embeddings:
        e = meta.embeddings
        lines.append(
            f"embeddings: {e['found']:,} of {meta.vocab_size:,} words have a vector ({e['source']})"
        )
    lines.append(f"written to {destdir}")
    if "train" not in meta.splits:
        split = next(iter(meta.splits))
        lines.append(
            f"next: tsm-eval {shlex.quote(str(destdir))} --path CHECKPOINT --gen-subset {split}"
        )
    elif "valid" not in meta.splits:
        lines.append("note: tsm-train needs a valid split; --split or --validpref makes one")
    elif meta.task in TRAINING:
        lines.append(f"next: tsm-train {shlex.quote(str(destdir))} {TRAINING[meta.task]}")
    return "\n".join(lines)


def series_lines(shape: Mapping[str, Any]) -> list[str]:
    """Describes the inputs of a step and, if they are numbers, the targets."""
    named = lambda names: f" ({', '.join(names)})" * bool(names)  # noqa: E731
    lines = [f"inputs: {shape['width']}{named(shape['columns'])}" + ", with dt" * shape["dt"]]
    if not shape["classes"]:
        lines.append(f"targets: {shape['outputs']}{named(shape['targets'])}")
    return lines


@contextmanager
def _terminate_cleanly() -> Iterator[None]:
    """Makes SIGTERM raise like Ctrl-C, so that no partial output is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


@command("tsm-preprocess")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    try:
        with _terminate_cleanly():
            meta = preprocess(args)
    except KeyboardInterrupt:
        return fail("tsm-preprocess", "interrupted; nothing was written", INTERRUPTED)
    except (ImportError, MemoryError, BrokenProcessPool) as error:
        raise ValueError(sentence(error)) from error
    print(report(meta, args.destdir))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
