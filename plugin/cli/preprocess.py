"""tsm-preprocess: text -> dict.txt and binarized splits in --destdir, whole or not at all.

    tsm-preprocess --dataset ptb-char --from DIR --destdir data/ptb-char
    tsm-preprocess --trainpref a.txt --validpref b.txt --tokenizer word --threshold 3 --destdir out
    tsm-preprocess --trainpref a.txt --bpe sentencepiece --vocab-size 8000 --workers 4 --destdir out
    tsm-preprocess --add-checksums --destdir data/ptb              for a folder of an earlier version

Exit codes: 0 done, 2 bad input (one sentence on stderr, nothing written), 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..command.bar import terminal_progress
from ..command.command import INTERRUPTED, Parser, UsageError, command, fail, sentence
from ..common.bounded import read_at_most
from ..data.build.images import IMAGE_DATASETS, build_images
from ..data.build.options import Options
from ..data.build.prepare import finish
from ..data.build.reviews import build_reviews
from ..data.build.sources import DATASETS, TEXT_DATASETS, user_text
from ..data.build.summary import summary_table
from ..data.build.text import Subword, build_text
from ..data.checksums import add_checksums
from ..data.files import Entry
from ..data.folder import staged_folder
from ..data.meta import Meta
from ..data.subword import MAX_MODEL, MODEL_TYPES
from ..data.tokenizers import plain_tokenizer
from ..data.vocab import Vocab

PREFIXES = ("train", "valid", "test")


def build_parser() -> argparse.ArgumentParser:
    """Every flag; names follow fairseq-preprocess where it has one."""
    p = Parser(
        prog="tsm-preprocess",
        description="Turn text or a known data set into a dictionary and binarized splits.",
        allow_abbrev=False,
    )
    p.add_argument("--destdir", type=Path, required=True, help="folder to make")
    known = p.add_argument_group("a known data set")
    known.add_argument("--dataset", choices=DATASETS, help="which one")
    known.add_argument(
        "--from", dest="root", type=Path, metavar="DIR", help="its files: a folder, or an archive"
    )
    known.add_argument(
        "--allow-differences", action="store_true", help="go on when the known counts do not hold"
    )
    known.add_argument(
        "--glove", type=Path, metavar="DIR", help="imdb: where GloVe is (default: --from)"
    )
    known.add_argument("--no-glove", action="store_true", help="imdb: no word vectors")
    own = p.add_argument_group("your own text (plain, .xz, .gz, .bz2; UTF-8)")
    for split in PREFIXES:
        own.add_argument(
            f"--{split}pref", type=Path, metavar="FILE", help=f"text of the {split} split"
        )
    own.add_argument("--tokenizer", choices=("word", "char", "char_ptb"), help="default: word")
    own.add_argument(
        "--srcdict", type=Path, metavar="FILE", help="use this dict.txt instead of a new dictionary"
    )
    own.add_argument(
        "--only-source", action="store_true", help=argparse.SUPPRESS
    )  # fairseq's flag for LMs
    words = p.add_argument_group("dictionary")
    words.add_argument(
        "--threshold",
        "--thresholdsrc",
        type=int,
        default=0,
        metavar="N",
        help="rarer symbols are <unk>",
    )
    words.add_argument(
        "--nwords",
        "--nwordssrc",
        type=int,
        default=0,
        metavar="N",
        help="size of the dictionary at most",
    )
    words.add_argument("--bpe", choices=("sentencepiece",), help="cut words into pieces")
    words.add_argument("--vocab-size", type=int, metavar="N", help="pieces to learn")
    words.add_argument(
        "--sentencepiece-type", choices=MODEL_TYPES, default="unigram", help="default: unigram"
    )
    words.add_argument(
        "--sentencepiece-model", type=Path, metavar="FILE", help="use this model, learn none"
    )
    run = p.add_argument_group("run")
    run.add_argument(
        "--add-checksums",
        action="store_true",
        help="only give --destdir, made by an earlier version, its checksums.txt",
    )
    run.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="processes; the output does not depend on it",
    )
    run.add_argument(
        "--seed", type=int, default=0, metavar="N", help="for random splits (default 0)"
    )
    return p


def preprocess(args: argparse.Namespace) -> Meta:
    """Do what the flags say; returns what was written."""
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
    with staged_folder(args.destdir) as stage:
        return finish(build(args, options, stage), stage)


def build(args: argparse.Namespace, options: Options, out: Path) -> Meta:
    """Fill the folder `out` (all but meta.json)."""
    if args.dataset == "imdb":
        return build_reviews(
            args.root, out, options, None if args.no_glove else args.glove or args.root
        )
    if args.dataset in IMAGE_DATASETS:
        return build_images(args.dataset, args.root, out, options)
    if args.dataset:
        source = TEXT_DATASETS[args.dataset](args.root)
    else:
        files = {s: path for s in PREFIXES if (path := getattr(args, f"{s}pref")) is not None}
        source = user_text(files, plain_tokenizer(args.tokenizer or "word"))
    vocab = None if args.srcdict is None else Vocab.load(args.srcdict)
    return build_text(source, out, options, _subword(args), vocab)


def check_flags(args: argparse.Namespace) -> None:
    """Say which flags do not go together."""
    prefixes = [s for s in PREFIXES if getattr(args, f"{s}pref") is not None]
    if bool(args.dataset) == bool(prefixes):
        raise UsageError(
            "give either --dataset NAME --from DIR, or --trainpref FILE (and --validpref, "
            "--testpref)"
        )
    if args.dataset and args.root is None:
        raise UsageError(f"--dataset {args.dataset} needs --from DIR")
    if not args.dataset and args.root is not None:
        raise UsageError("--from goes with --dataset")
    for flag in ("tokenizer", "srcdict"):
        if args.dataset and getattr(args, flag):
            raise UsageError(
                f"--{flag} goes with your own text; --dataset {args.dataset} brings its own"
            )
    if (
        not args.dataset
        and "train" not in prefixes
        and not (args.srcdict or args.sentencepiece_model)
    ):
        raise UsageError(
            "--trainpref is needed to make the dictionary (or give one: --srcdict FILE)"
        )
    if args.dataset != "imdb" and (args.glove or args.no_glove):
        raise UsageError("--glove and --no-glove go with --dataset imdb")
    if args.dataset and args.dataset not in TEXT_DATASETS and args.bpe:
        raise UsageError(f"--bpe does not go with --dataset {args.dataset}")
    if not args.bpe and (args.vocab_size is not None or args.sentencepiece_model):
        raise UsageError("--vocab-size and --sentencepiece-model go with --bpe sentencepiece")
    if args.bpe and (args.vocab_size is None) == (args.sentencepiece_model is None):
        raise UsageError(
            "--bpe sentencepiece needs either --vocab-size N or --sentencepiece-model FILE"
        )
    if args.srcdict and (args.bpe or args.threshold or args.nwords):
        raise UsageError(
            "--srcdict is used as it is; --bpe, --threshold and --nwords do not go with it"
        )


def _subword(args: argparse.Namespace) -> Subword | None:
    if not args.bpe:
        return None
    if args.sentencepiece_model is None:
        return Subword(args.vocab_size, args.sentencepiece_type)
    with Entry(args.sentencepiece_model).open() as f:
        return Subword(model=bytes(read_at_most(f, MAX_MODEL, str(args.sentencepiece_model))))


def report(meta: Meta, destdir: Path) -> str:
    """The lines on screen at the end."""
    lines = [f"note: {n}" for n in meta.notes] + [f"differs: {d}" for d in meta.differences]
    lines.append(summary_table(meta))
    if meta.vocab_size is not None:
        lines.append(f"dictionary: {meta.vocab_size:,} types")
    if meta.embeddings:
        e = meta.embeddings
        lines.append(
            f"embeddings: {e['found']:,} of {meta.vocab_size:,} words have a vector ({e['source']})"
        )
    return "\n".join([*lines, f"written to {destdir}"])


@contextmanager
def _terminate_cleanly() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C, so that nothing half-written stays."""
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
    """Run the command; returns its exit code."""
    args = build_parser().parse_args(argv)
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
