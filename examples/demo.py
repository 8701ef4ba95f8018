"""Shows what tsm is for, in two minutes on two cores: a power-law LSTM beside an LSTM of the same size.

Both are language models, trained on text from a seeded grammar in which a word may depend on one far back. The
table shows what each has learned, the figure how long each unit remembers. Then the power-law LSTM is exported
to a file and streamed through the C++ runtime, in chunks of any size.

    python examples/demo.py [--updates N] [--output DIR]
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.analysis import DecayCurves, model_decay_curves, plot_decay_curves
from tsm.plugin.data.grammar import GrammarCorpus, grammar_corpus, ngram_perplexity
from tsm.plugin.models import count_parameters
from tsm.plugin.train.checkpoint import read_checkpoint
from tsm.plugin.trained import Trained, open_trained
from tsm.runtime import Model

CELLS = {"plstm": "power-law LSTM", "lstm": "LSTM"}
TRAIN_TOKENS = 200_000
DISTANCES = [(1, 4), (5, 14), (15, 39), (40, 10_000)]


def widths(vocab_size: int, budget: int) -> dict[str, int]:
    """For each cell, the width whose model is closest to `budget` parameters."""

    def parameters(cell: str, width: int) -> int:
        model = build_model(f"{cell}_lm", vocab_size=vocab_size, **shape(width))
        return count_parameters(model)

    return {
        cell: min(range(64, 161, 2), key=lambda w: abs(parameters(cell, w) - budget))
        for cell in CELLS
    }


def shape(width: int) -> dict[str, int]:
    return {"decoder_embed_dim": 64, "decoder_hidden_size": width, "decoder_layers": 1}


def train(sizes: dict[str, int], updates: int, folder: Path) -> dict[str, Path]:
    """Runs `tsm-train --arch CELL_lm ...` for all cells at once, one thread each. Returns the checkpoints."""
    started = {cell: start(cell, width, updates, folder) for cell, width in sizes.items()}
    usual = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C still ends the trainings
    try:
        with ThreadPoolExecutor() as threads:
            codes = list(threads.map(follow, started.keys(), started.values()))
    finally:
        signal.signal(signal.SIGINT, usual)
    if failed := [cell for cell, code in zip(sizes, codes, strict=True) if code]:
        print(f"the training of {' and '.join(failed)} failed", file=sys.stderr)
        raise SystemExit(next(code if code > 0 else 128 - code for code in codes if code))
    return {cell: folder / cell / "checkpoint_last.pt" for cell in sizes}


def start(cell: str, width: int, updates: int, folder: Path) -> subprocess.Popen[str]:
    flags = {f"--{name.replace('_', '-')}": value for name, value in shape(width).items()}
    flags |= {
        "--max-update": updates,
        "--max-epoch": 0,
        "--batch-size": 16,
        "--lr": 2e-2,
    }
    flags |= {
        "--tokens-per-sample": 35,
        "--lr-scheduler": "cosine",
        "--generated-tokens": TRAIN_TOKENS,
        "--log-interval": 100,
    }
    flags |= {"--save-dir": folder / cell}
    argv = ["--arch", f"{cell}_lm", "--no-epoch-checkpoints", "--cpu"]
    argv += [str(word) for pair in flags.items() for word in pair]
    print(f"\n$ tsm-train {' '.join(argv)}", flush=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tsm.plugin.cli.train", *argv],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def follow(cell: str, training: subprocess.Popen[str]) -> int:
    """Prints the output of a training run, each line prefixed with the cell's name; returns its exit code."""
    assert training.stdout is not None
    for line in training.stdout:
        print(f"{cell:<5} | {line}", end="", flush=True)
    return training.wait()


@torch.no_grad()
def nats_per_word(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """-log p of every word but the first, with the text read as one endless stream in chunks."""
    model.eval()
    x = torch.from_numpy(tokens)
    state: list[dict[str, Tensor]] | None = None
    found = []
    for start in range(0, len(x) - 1, 512):
        chunk = x[start : min(start + 512, len(x) - 1)]
        logits, state = model(chunk[None], state=state)
        target = x[start + 1 : start + 1 + len(chunk)]
        found.append(torch.nn.functional.cross_entropy(logits[0], target, reduction="none"))
    return torch.cat(found).double().numpy()


def table(
    models: dict[str, torch.nn.Module],
    nats: dict[str, np.ndarray],
    corpus: GrammarCorpus,
    seconds: dict[str, float],
) -> str:
    """Perplexity on the test text: of all words, and of those that depend on a word at each distance."""
    text, size = corpus.test, len(corpus.vocabulary)
    unigram, bigram = ngram_perplexity(corpus.train.tokens, text.tokens, size)
    distance = text.distance[1:]
    heads = ["model", "parameters", "seconds", "perplexity"]
    heads += [f"{low}-{high}" if high < 10_000 else f"{low}+" for low, high in DISTANCES]

    def row(name: str, nats: np.ndarray, *first: str) -> list[str]:
        cells = [name, *first, f"{np.exp(nats.mean()):.2f}"]
        for low, high in DISTANCES:
            cells.append(f"{np.exp(nats[(distance >= low) & (distance <= high)].mean()):.2f}")
        return cells

    rows = [heads, ["unigrams", "", "", f"{unigram:.2f}", "", "", "", ""]]
    rows.append(["bigrams", "", "", f"{bigram:.2f}", "", "", "", ""])
    for cell, model in models.items():
        parameters = f"{count_parameters(model):,}"
        rows.append(row(CELLS[cell], nats[cell], parameters, f"{seconds[cell]:.0f}"))
    rows.append(row("the grammar itself", text.nats[1:], "", ""))
    lines = aligned(rows)
    note = "test perplexity; right: of words that depend on a word that many words before"
    return "\n".join([note, "-" * len(lines[0]), lines[0], "-" * len(lines[0]), *lines[1:]])


def aligned(rows: list[list[str]]) -> list[str]:
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            w.rjust(n) if i else w.ljust(n) for i, (w, n) in enumerate(zip(r, sizes, strict=True))
        )
        for r in rows
    ]


def export(trained: Trained, path: Path) -> Path:
    """Writes the model with its dictionary to one file for the runtime."""
    print(f"\n{package(trained, path)}")
    return path


def streamed(path: Path, tokens: np.ndarray, nats: np.ndarray) -> str:
    """Streams the test text through the C++ runtime, in random chunks, and compares with PyTorch."""
    rows = [["weights", "perplexity", "largest difference of log p", "words a second"]]
    rows.append(["PyTorch", f"{np.exp(nats.mean()):.4f}", "", ""])
    for dtype in ("float32", "bfloat16", "int8"):
        stream = Model.load(path, dtype=dtype).create_stream()
        cuts = np.random.default_rng(0).integers(1, 60, len(tokens)).cumsum()
        chunks = np.split(tokens, cuts[cuts < len(tokens)])
        start = time.perf_counter()
        found = [stream.score(chunk) for chunk in chunks]
        seconds = time.perf_counter() - start
        mine = -np.concatenate(found)[1:].astype(np.float64)  # PyTorch skips the first word
        row = [dtype, f"{np.exp(mine.mean()):.4f}", f"{np.abs(mine - nats).max():.1e}"]
        rows.append([*row, f"{len(tokens) / seconds:,.0f}"])
    return "\n".join(aligned(rows))


def curves(cell: str, model: torch.nn.Module, corpus: GrammarCorpus) -> DecayCurves:
    """The units' decay, measured on validation text."""
    tokens = torch.from_numpy(corpus.valid.tokens[:8192]).reshape(16, -1)
    (found,) = model_decay_curves(model, tokens)
    return dataclasses.replace(found, label=CELLS[cell])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=2500, help="training updates of each model")
    parser.add_argument("--output", type=Path, default=Path("demo_out"), help="output folder")
    args = parser.parse_args()
    shutil.rmtree(args.output / "checkpoints", ignore_errors=True)  # otherwise it would resume

    corpus = grammar_corpus(1, TRAIN_TOKENS, TRAIN_TOKENS // 10, TRAIN_TOKENS // 10)
    paths = train(
        widths(len(corpus.vocabulary), budget=100_000), args.updates, args.output / "checkpoints"
    )
    trained = {cell: open_trained(path) for cell, path in paths.items()}
    models = {cell: one.model for cell, one in trained.items()}
    seconds = {
        cell: read_checkpoint(path)["train_state"]["seconds"] for cell, path in paths.items()
    }

    nats = {cell: nats_per_word(model, corpus.test.tokens) for cell, model in models.items()}
    print("\n" + table(models, nats, corpus, seconds))
    picture = args.output / "decay_curves.png"
    plot_decay_curves([curves(cell, model, corpus) for cell, model in models.items()], picture)
    print(f"\nHow long each unit keeps what it stored: {picture}")

    path = export(trained["plstm"], args.output / "plstm.tsm")
    print("the test text streamed in chunks of 1 to 59 words, C++ runtime, one thread")
    print(streamed(path, corpus.test.tokens, nats["plstm"]))
    print(f"\nTry it: echo 'the old' | tsm-stream {path} --generate 20")


if __name__ == "__main__":
    main()
