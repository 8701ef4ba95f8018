"""tsm-eval: scores a trained model.

    tsm-eval --path runs/lm/checkpoint_best.pt                 the test split of its own data
    tsm-eval data/ptb --path CKPT --gen-subset valid --frequency-bins
    tsm-eval data/ptb-char --path CKPT --baselines --json result.json
    tsm-eval data/imdb --path CKPT --by-length

Language models are scored on the text as one stream with the state carried along (--batch-size 1, the default
for test). For the validation split the default is the batch size used in training, which reproduces the logged
numbers. More streams are faster, but each starts from a zero state. For classifiers, precision, recall and F1
of every label are also reported, with counts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command.bar import bar, track
from ..command.command import UsageError, command
from ..command.flags import (
    add_model_flags,
    integer,
    load_plugins,
    make_parser,
    strictly,
)
from ..common.inputs import keep_inputs
from ._eval_adapt import adaptation_lines, adaptation_of, add_adaptation_flags

if TYPE_CHECKING:
    import torch

    from ..trained import Trained

TEXT_FLAGS = (
    "dynamic_lr",
    "dynamic_decay",
    "cache_size",
    "cache_theta",
    "cache_lambda",
    "frequency_bins",
    "baselines",
    "output_word_probs",
    "tokens_per_sample",
)
MOST_LABELS = 50  # shown individually
SHARES = ("precision", "recall", "f1")


@command("tsm-eval")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    if args.length_bins and not args.by_length:
        raise UsageError("--length-bins requires --by-length")
    load_plugins(args.user_dir)
    from ..common.device import choose_device
    from ..trained import open_trained

    device = choose_device(args.device, args.cpu)
    trained = open_trained(args.path, device)
    for flag, file in (("--json", args.json), ("--output-word-probs", args.output_word_probs)):
        keep_inputs(flag, [file] if file else [], [args.path, choose_data(args.data, trained)])
    results = evaluate(args, trained, device)
    print("\n".join(lines(results)))
    if args.json:
        from ..common.atomic import write_bytes

        write_bytes(Path(args.json), (json.dumps(finite(results), indent=2) + "\n").encode())
    return 0


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-eval", __doc__, "tsm-eval [DATA] --path CKPT [flags]")
    p.add_argument(
        "data", nargs="?", metavar="DATA", help="preprocessed folder (default: the training data)"
    )
    add_model_flags(p)
    how = p.add_argument_group("how")
    how.add_argument("--gen-subset", default="test", metavar="SPLIT", help="test (default), valid")
    how.add_argument(
        "--batch-size",
        "--max-sentences",
        type=integer(1),
        metavar="N",
        help="streams or sequences per batch",
    )
    how.add_argument(
        "--tokens-per-sample",
        type=integer(1),
        metavar="N",
        help="steps per call; it affects the loss only of models trained with --reset-state",
    )
    how.add_argument(
        "--seed", type=integer(0), default=0, metavar="N", help="seed of the bootstrap samples"
    )
    add_adaptation_flags(p)
    what = p.add_argument_group("what to report besides loss, perplexity and accuracy")
    what.add_argument(
        "--frequency-bins", action="store_true", help="perplexity by training frequency"
    )
    what.add_argument("--by-length", action="store_true", help="accuracy by length of the sequence")
    what.add_argument(
        "--length-bins", metavar="N,N,...", type=edges, help="largest length of each bin"
    )
    what.add_argument(
        "--baselines", action="store_true", help="character models: also report unigram and xz"
    )
    what.add_argument(
        "--output-word-probs",
        type=Path,
        metavar="FILE",
        help="write token, TAB, log2 p; one line per token",
    )
    what.add_argument("--json", metavar="FILE", help="also write all results to a file")
    return p


def edges(text: str) -> list[int]:
    """ "100,200,400" -> [100, 200, 400]"""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or found[0] < 1 or any(b <= a for a, b in itertools.pairwise(found)):
        raise argparse.ArgumentTypeError(
            f"{text!r}; accepted: increasing integers separated by commas"
        )
    return found


def evaluate(args: argparse.Namespace, trained: Trained, device: torch.device) -> dict[str, Any]:
    """All requested scores, as plain values."""
    from ..evaluation.eval_text import is_text_model
    from ..models import count_parameters
    from ..train.run import backend

    text = is_text_model(trained)
    for flag in () if text else TEXT_FLAGS:
        if getattr(args, flag):
            name = trained.config["task"]["name"]
            raise UsageError(
                f"--{flag.replace('_', '-')} is for language models; {args.path} was trained on {name}"
            )
    if text and args.by_length:
        raise UsageError(f"--by-length is for sequences; {args.path} is a language model")
    data = choose_data(args.data, trained)
    found = of_text(args, trained, device, data) if text else of_task(args, trained, device, data)
    return {
        "checkpoint": str(args.path),
        "arch": trained.config["model"]["arch"],
        "parameters": count_parameters(trained.model),
        "task": trained.config["task"]["name"],
        "data": data,
        "split": args.gen_subset,
        "device": str(device),
        "backend": backend(trained.model, device, False),
        **found,
    }


def choose_data(given: str | None, trained: Trained) -> str:
    """The given data, or the training data."""
    from ..evaluation.eval_task import data_of_training

    if given is not None:
        return given
    return data_of_training(trained, f": tsm-eval DATA --path {trained.path}")


def of_text(
    args: argparse.Namespace, trained: Trained, device: torch.device, data: str
) -> dict[str, Any]:
    """A language model."""
    from ..evaluation import eval_text as e

    text = e.open_text(trained, data, args.gen_subset)
    config = e.task_config(trained)
    batch_size = args.batch_size or e.default_batch_size(config, args.gen_subset)
    if args.output_word_probs and args.batch_size is None:
        batch_size = 1
    vocab_size = text.tokens.vocab_size
    adaptation = adaptation_of(args)
    steps = args.tokens_per_sample or e.default_steps(
        config, batch_size, vocab_size, adaptation.lr > 0
    )
    wanted = e.Wanted(
        args.frequency_bins,
        args.baselines,
        args.output_word_probs,
        args.seed,
        adaptation=adaptation,
    )
    with bar(args.gen_subset, len(text.tokens) - batch_size, f"{text.unit}s") as update:
        watch = e.Watch(update, track("bootstrap"))
        found = e.evaluate_text(trained, text, batch_size, steps, device, wanted, watch)
    return {"dataset": text.name, "streams": batch_size, "split_tokens": len(text.tokens), **found}


def of_task(
    args: argparse.Namespace, trained: Trained, device: torch.device, data: str
) -> dict[str, Any]:
    """Evaluates a classifier, or a tagger of one of the papers' tasks."""
    from ..evaluation.eval_task import evaluate_task, open_task

    task = open_task(trained, data, args.batch_size)
    with bar(args.gen_subset, None, "sequences") as update:
        return evaluate_task(
            trained, task, args.gen_subset, device, args.by_length, args.length_bins, update
        )


def lines(r: dict[str, Any]) -> list[str]:
    """The report for people."""
    out = [
        f"{r['arch']}, {r['parameters']:,} parameters, {r['backend']} on {r['device']}; "
        f"{r.get('dataset') or r['task']} {r['split']}"
    ]
    many, unit = ("tokens", f"{r['unit']}s") if "tokens" in r else ("sequences", "sequences")
    pace = r[many] / max(r["seconds"], 1e-9)
    streams = "" if r.get("streams", 1) == 1 else f" in {r['streams']} streams"
    out.append(
        f"Evaluated {r[many]:,} {unit}{streams} in {r['seconds']:.1f} s ({pace:,.0f} {unit}/s)"
    )
    if "perplexity" in r:
        out.append(f"Loss (base 2): {r['loss']:.4f}, Perplexity: {r['perplexity']:.2f}")
    elif r.get("loss_unit") == "bits":
        out.append(f"Loss (base 2): {r['loss']:.4f}")
    else:
        out.append(f"Loss ({r['criterion']}): {r['loss']:.6g}")
    out += adaptation_lines(r)
    if "bits_per_character" in r:
        out.append(f"Bits per character: {r['bits_per_character']:.4f}")
    if "per_word" in r:
        w = r["per_word"]
        out.append(
            f"Per word: Loss (base 2): {w['loss']:.4f}, Perplexity: {w['perplexity']:.2f} "
            f"({w['words']:,} words)"
        )
    for name in ("accuracy", "right"):
        if name in r:
            out.append(f"{name.capitalize()}: {100 * r[name]:.2f}%")
    return [*out, *label_lines(r), *baseline_lines(r), *bin_lines(r), *length_lines(r)]


def label_lines(r: dict[str, Any]) -> list[str]:
    rows = r.get("by_label", [])
    if not rows:
        return []
    if len(rows) > MOST_LABELS:
        return [f"{len(rows)} labels: --json FILE has the precision and recall of each"]
    width = max(16, *(len(row["label"]) + 2 for row in rows))
    out = [
        f"{'label':<{width}}{'count':>8}{'predicted':>11}{'precision':>11}{'recall':>9}{'F1':>9}"
    ]
    for row in rows:
        shares = ["-" if row[k] is None else f"{100 * row[k]:.2f}%" for k in SHARES]
        text = f"{row['label']:<{width}}{row['count']:>8,}{row['predicted']:>11,}"
        out.append(f"{text}{shares[0]:>11}{shares[1]:>9}{shares[2]:>9}")
    return out


def baseline_lines(r: dict[str, Any]) -> list[str]:
    if "baselines" not in r:
        return []
    b = r["baselines"]
    return [
        "Bits per character: "
        f"model {r['bits_per_character']:.4f} | unigram {b['unigram']:.4f} | xz {b['xz']:.4f}",
        "  (unigram: training counts plus one; xz: the split's text alone, as xz -9e packs it)",
    ]


def bin_lines(r: dict[str, Any]) -> list[str]:
    if "frequency_bins" not in r:
        return []
    out = [f"{'training count':<16}{r['unit'] + 's':>12}{'perplexity':>14}   95% interval"]
    for row in r["frequency_bins"]:
        text = f"{row['label']:<16}{row['words']:>12,}"
        if row["perplexity"] is not None:
            text += f"{row['perplexity']:>14,.2f}   {row['low']:,.2f} to {row['high']:,.2f}"
        out.append(text)
    return out


def length_lines(r: dict[str, Any]) -> list[str]:
    if "by_length" not in r:
        return []
    out = [f"{'length':<16}{'sequences':>12}{'accuracy':>14}   95% interval"]
    for row in r["by_length"]:
        text = f"{row['label']:<16}{row['sequences']:>12,}"
        if row["accuracy"] is not None:
            text += f"{100 * row['accuracy']:>13.2f}%"
        if row["low"] is not None:
            text += f"   {100 * row['low']:.2f}% to {100 * row['high']:.2f}%"
        out.append(text)
    return out


def finite(value: Any) -> Any:
    """Numbers that JSON cannot represent become null."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    raise SystemExit(main())
