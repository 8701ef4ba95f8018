"""tsm-stream: runs a model in the C++ runtime as an endless stream from stdin to stdout.

    tsm-stream MODEL.tsm < text.txt                       log-probability and surprisal of every token
    tail -f log | tsm-stream MODEL.tsm --format json      as it arrives, one JSON object per token
    printf 'the cat' | tsm-stream MODEL.tsm --generate 40 continues the text
    tsm-stream MODEL.tsm --save-state s.bin < part1; tsm-stream MODEL.tsm --load-state s.bin < part2
    tsm-stream CLASSIFIER.tsm < review.txt                class probabilities (or numbers) after each token

Input is fed as soon as it arrives, at most --chunk tokens per call. Results do not depend on how the input is
cut into chunks. A word is read when white space follows it (or the input ends), an end of line when its newline
arrives. Models with float inputs read rows of numbers; with --dt, each row has one more number: its time step.
Speed is reported on stderr. PyTorch is not needed.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command.command import INTERRUPTED, NO_READER, UsageError, command, discard_output
from ..command.flags import as_flags, integer, make_parser, strictly
from ..common.file_kinds import MODEL, wrong_kind
from ..common.inputs import keep_inputs
from ..common.lazy import np

if TYPE_CHECKING:
    from ...runtime import Model, Stream
    from ..data import Tokenizer, Vocab
    from ..data.ranges import Ranges
    from ._stream_input import Chunk

MOST_COLUMNS = 10  # classes shown individually in a table


@command("tsm-stream")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    check_place(args.save_state, args.model)
    from ...runtime import Model

    if wrong := wrong_kind(args.model, MODEL):
        raise UsageError(wrong)
    model = Model.load(args.model, device=args.device, dtype=args.dtype, threads=args.threads)
    check(args, model)
    if model.takes_dt and not model.takes_tokens and args.dt is None:
        print(
            f"tsm-stream: without --dt every row lasts 1; the cell of {args.model} uses time steps",
            file=sys.stderr,
        )
    stream = model.create_stream()
    if args.load_state:
        stream.load_state(Path(args.load_state).read_bytes())
    session, start = Session(args, model, stream), stream.position
    code = 0
    try:
        session.run()
        sys.stdout.flush()
    except KeyboardInterrupt:  # the state after the input so far can be saved
        code = INTERRUPTED
    except BrokenPipeError:  # the reader has closed the pipe (| head); the state can be saved
        discard_output()
        code = NO_READER
    except ValueError as error:  # bad input: the state is that after the last good chunk
        if not args.save_state or stream.position == start:
            raise
        save(args.save_state, stream)
        where = f"{args.save_state} has the state at position {stream.position:,}"
        raise UsageError(f"{error}; {where}") from error
    save(args.save_state, stream)
    session.report()
    return code


def save(path: str | None, stream: Stream) -> None:
    if path is None:
        return
    from ..common.atomic import write_bytes

    write_bytes(Path(path), stream.save_state())


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-stream", __doc__, "tsm-stream MODEL.tsm [flags] < input")
    p.add_argument("model", metavar="MODEL.tsm", help="model file written by tsm-export tsm")
    p.add_argument("--device", default="cpu", help="device: cpu (default) or cuda")
    p.add_argument(
        "--dtype", default="float32", help="type of the weights: float32, bfloat16 or int8"
    )
    p.add_argument("--threads", type=integer(1, 1024), default=1, metavar="N", help="default: 1")
    p.add_argument("--tokens", action="store_true", help="stdin has token ids instead of text")
    p.add_argument(
        "--dt",
        choices=("first", "last"),
        help="which number of a row is the time since the previous row",
    )
    p.add_argument(
        "--chunk",
        type=integer(1),
        default=256,
        metavar="N",
        help="maximum tokens per call (default 256)",
    )
    p.add_argument(
        "--format",
        choices=("auto", "table", "tsv", "json"),
        default="auto",
        help="auto: table on a terminal, else tsv; with --generate: text",
    )
    p.add_argument("--quiet", action="store_true", help="print no rows, only the summary")
    p.add_argument("--load-state", metavar="FILE", help="continue from this saved state")
    p.add_argument("--save-state", metavar="FILE", help="save the state at the end")
    g = p.add_argument_group("generation")
    g.add_argument("--generate", type=integer(0), metavar="N", help="then generate N tokens")
    g.add_argument("--temperature", type=float, default=1.0, metavar="X", help="default 1")
    g.add_argument("--top-k", type=integer(0), default=0, metavar="K", help="0: all (default)")
    g.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1: all (default)")
    g.add_argument("--seed", type=integer(0), default=0, metavar="N", help="default 0")
    return p


def check_place(given: str | None, model: str) -> None:
    """Checks before reading any input that the state can be saved at the end."""
    if not given:
        return
    path = Path(given)
    usable = path.parent.is_dir() and os.access(path.parent, os.W_OK | os.X_OK)
    if (path.exists() and not path.is_file()) or not usable:
        raise UsageError(f"--save-state {given} is not a file in a writable folder")
    keep_inputs("--save-state", [path], [model, "/dev/stdin"])


def check(args: argparse.Namespace, model: Model) -> None:
    if args.generate is not None:
        if model.family != "lm":
            raise UsageError(
                f"--generate: {args.model} is a {model.family}; accepted: a language model"
            )
        sampling = sampling_of(args, model)
        try:
            model.create_stream().generate(0, **sampling)
        except ValueError as error:
            raise UsageError(as_flags(str(error), sampling)) from error
    if args.dt is not None and (model.takes_tokens or not model.takes_dt):
        what = "reads text or tokens" if model.takes_tokens else "has a cell without time steps"
        raise UsageError(
            f"--dt: {args.model} {what}; accepted with models that read rows of numbers and whose cell takes dt"
        )
    if args.tokens and not model.takes_tokens:
        raise UsageError(
            f"--tokens: {args.model} reads rows of {model.input_size} numbers; "
            "accepted: without --tokens"
        )
    if model.takes_tokens and not args.tokens and not model.asset("text.dict"):
        raise UsageError(
            f"{args.model} has no dictionary: it was not trained on text; give --tokens"
        )


def sampling_of(args: argparse.Namespace, model: Model) -> dict[str, Any]:
    """Sampling options, as arguments of Stream.generate."""
    top_k = min(args.top_k, model.output_size)  # a larger K also means all
    return dict(temperature=args.temperature, top_k=top_k, top_p=args.top_p, seed=args.seed)


class Session:
    """Feeds input to the stream and writes its results."""

    def __init__(self, args: argparse.Namespace, model: Model, stream: Stream) -> None:
        from ._stream_input import Unknown

        self.args, self.model, self.stream = args, model, stream
        self.vocab, self.tokenizer = text_side(model, args.model)
        self.labels, self.targets = model.labels, model.targets
        self.ranges, self.columns = ranges_of(model, args.model), model.columns or ()
        self.sampling = sampling_of(args, model)
        self.unknown = Unknown()
        self.seconds = self.nats = 0.0
        self.steps = self.generated = 0
        self.rows: Any = None

    def run(self) -> None:
        from ._stream_output import Rows

        generating = self.args.generate is not None
        form = self.args.format
        if form == "auto":
            form = "table" if sys.stdout.isatty() else "tsv"
        self.rows = Rows(sys.stdout, form)
        as_text = generating and self.args.format == "auto" and self.tokenizer is not None
        prompt: list[str] = []
        for chunk in self.chunks(drop_last=generating):
            results = self.feed(chunk)
            if generating:
                prompt += chunk.symbols
            elif not self.args.quiet:
                for row in results:
                    self.rows.add(row)
                sys.stdout.flush()
        if generating:
            self.generate(prompt, as_text)

    def chunks(self, drop_last: bool) -> Iterable[Chunk]:
        from ._stream_input import text_chunks, token_chunks, value_chunks

        source, size = sys.stdin.buffer, self.args.chunk
        if not self.model.takes_tokens:
            return value_chunks(source, self.model.input_size, size, self.args.dt)
        if self.args.tokens or self.vocab is None or self.tokenizer is None:
            return token_chunks(source, self.vocab, self.model.vocab_size, size)
        vocab = self.vocab
        if self.tokenizer.unit == "block" and vocab.unk is None and "\n" not in vocab:
            drop_last = True  # characters without newlines, as in text8
        return text_chunks(source, self.tokenizer, self.vocab, size, self.unknown, drop_last)

    def feed(self, chunk: Chunk) -> list[dict[str, Any]]:
        """One row per step."""
        if self.ranges is not None and (far := self.ranges.outside(chunk.x, self.columns)):
            from ..data.ranges import note

            self.ranges = None
            print(f"tsm-stream: {note(f'step {self.stream.position}', far)}", file=sys.stderr)
        call = self.stream.score if self.model.family == "lm" else self.stream.feed
        first, start = self.stream.position, time.perf_counter()
        found = call(chunk.x, chunk.dt)
        self.seconds += time.perf_counter() - start
        self.steps += len(chunk.x)
        if self.model.family == "lm":
            self.nats -= float(found.sum(dtype=np.float64))
        rows = []
        for i, symbol in enumerate(chunk.symbols):
            row: dict[str, Any] = {"position": first + i}
            if self.model.takes_tokens:
                row |= {"id": int(chunk.x[i]), "token": symbol}
            rows.append(row | self.result(found[i]))
        return rows

    def result(self, found: Any) -> dict[str, Any]:
        """log p of a token, numeric outputs, or the class probabilities."""
        if self.model.family == "lm":
            return {"log_prob": float(found), "surprisal": -float(found) / math.log(2)}
        if self.targets is not None:
            return {"values": dict(zip(self.targets, found.tolist(), strict=True))}
        shares = np.exp(found - found.max(), dtype=np.float64)
        shares /= shares.sum()
        best = int(shares.argmax())
        row: dict[str, Any] = {"best": best}
        if self.labels is not None:
            row["label"] = self.labels[best]
        row["probability"] = float(shares[best])
        if len(shares) <= MOST_COLUMNS or self.args.format == "json":
            listed = shares.tolist()
            names = None if self.args.format == "json" else self.labels  # names of the columns
            row["probabilities"] = dict(zip(names, listed, strict=True)) if names else listed
        return row

    def generate(self, prompt: list[str], as_text: bool) -> None:
        """Writes the prompt and its continuation as text, or a row for each new token, without delay."""
        if self.stream.position == 0 and self.vocab is not None:  # start as tsm-generate does
            self.stream.feed([self.vocab.start], last_only=True)
        text = None
        if as_text and self.tokenizer is not None:
            from ._text_stream import TextStream

            text = TextStream(self.tokenizer)
            sys.stdout.write("".join(text.add(symbol) for symbol in prompt))
        for _ in range(self.args.generate):
            position, token = self.stream.position, self.draw()
            named = self.vocab is not None and token < len(self.vocab.symbols)
            name = self.vocab[token] if self.vocab is not None and named else str(token)
            if text is not None:
                sys.stdout.write(text.add(name))
            elif not self.args.quiet:
                self.rows.add({"position": position, "id": token, "token": name})
            sys.stdout.flush()
        if text is not None:
            sys.stdout.write(text.close() + "\n")

    def draw(self) -> int:
        """The next token. It depends only on seed and position, so drawing tokens one by one or all at once
        makes no difference."""
        start = time.perf_counter()
        (token,) = self.stream.generate(1, **self.sampling)
        self.seconds += time.perf_counter() - start
        self.generated += 1
        return int(token)

    def report(self) -> None:
        """Prints token count, score and speed to stderr."""
        said = [f"{self.steps:,} {'tokens' if self.model.takes_tokens else 'rows'}"]
        if self.generated:
            said.append(f"{self.generated:,} generated")
        if self.model.family == "lm" and self.steps:
            bits = self.nats / self.steps / math.log(2)
            said.append(f"{bits:.4f} bits per token (perplexity {2 ** min(bits, 1000):.2f})")
        many = self.steps + self.generated
        if self.seconds > 0:
            said.append(
                f"{self.seconds:.3f} s in the runtime, {many / self.seconds:,.0f} per second"
            )
        threads = f", threads {self.model.threads}" if self.model.device == "cpu" else ""
        said.append(f"{self.model.dtype}, {self.model.level}{threads}")
        print(f"tsm-stream: {'; '.join(said)}", file=sys.stderr)
        if self.unknown.counts:
            print(f"tsm-stream: {self.unknown}", file=sys.stderr)


def ranges_of(model: Model, path: str) -> Ranges | None:
    """The ranges of the inputs in the training data, if the file has them."""
    from ..data.ranges import Ranges

    ranges = model.asset("text.ranges")
    count = 0 if model.takes_tokens else model.input_size
    return Ranges.parse(ranges, f"{path}: text.ranges", count) if ranges else None


def text_side(model: Model, path: str) -> tuple[Vocab | None, Tokenizer | None]:
    """The dictionary and tokenizer in the model file, if it has them."""
    from ..data.subword import SentencePieceTokenizer
    from ..data.tokenizers import plain_tokenizer
    from ..data.vocab import Vocab

    words = model.asset("text.dict")
    if not words:
        return None, None
    vocab = Vocab.loads(words, f"{path}: text.dict")
    pieces = model.asset("text.sentencepiece")
    if pieces:
        return vocab, SentencePieceTokenizer(pieces)
    return vocab, plain_tokenizer(model.tokenizer) if model.tokenizer else None


if __name__ == "__main__":
    raise SystemExit(main())
