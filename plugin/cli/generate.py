"""tsm-generate: generates text with a trained language model and prints it as it is generated.

    tsm-generate --path runs/lm/checkpoint_best.pt --prompt "the meaning of" --length 200
    tsm-generate --path CKPT --temperature 0.7 --top-k 40 --top-p 0.95 --seed 3
    echo "the cat" | tsm-generate --path CKPT --prompt -

The training data is not needed: the checkpoint contains the dictionary and the tokenizer. The same seed gives
the same text. Without a prompt the model starts as if after the end of a line.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..command.command import command
from ..command.flags import add_model_flags, integer, load_plugins, make_parser, strictly

if TYPE_CHECKING:
    from ..trained import Trained


@command("tsm-generate")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    args = strictly(build_parser(), argv)
    load_plugins(args.user_dir)
    from ..common.device import choose_device
    from ..generation import Sampling
    from ..trained import open_trained

    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    trained = open_trained(args.path, choose_device(args.device, args.cpu))
    if trained.config["model"]["model"] != "lm":
        family = trained.config["model"]["model"]
        raise ValueError(f"{args.path} is a {family}; accepted: a language model")
    prompt = encode_prompt(read_prompt(args.prompt), trained)
    write(args, trained, prompt, sampling)
    return 0


def build_parser() -> argparse.ArgumentParser:
    p = make_parser("tsm-generate", __doc__, "tsm-generate --path CKPT [flags]")
    add_model_flags(p)
    g = p.add_argument_group("text")
    g.add_argument(
        "--prompt", default="", metavar="TEXT", help="beginning of the text; -: read it from stdin"
    )
    g.add_argument(
        "--length", type=integer(0), default=100, metavar="N", help="tokens (default: 100)"
    )
    g.add_argument(
        "--temperature",
        type=float,
        default=1.0,
        metavar="X",
        help="0: always the most probable token (default 1)",
    )
    g.add_argument(
        "--top-k",
        type=int,
        default=0,
        metavar="K",
        help="sample from the K most probable tokens (default 0: all)",
    )
    g.add_argument(
        "--top-p",
        type=float,
        default=1.0,
        metavar="P",
        help="sample from the most probable tokens with a total probability of P (default 1: all)",
    )
    g.add_argument("--seed", type=integer(0), default=0, metavar="N", help="default: 0")
    g.add_argument(
        "--output-tokens",
        action="store_true",
        help="write the generated tokens (id, TAB, symbol as in dict.txt), one per line",
    )
    return p


def read_prompt(given: str) -> str:
    """The prompt; if it is read from stdin, its final newline is dropped."""
    return sys.stdin.read().removesuffix("\n") if given == "-" else given


def encode_prompt(text: str, trained: Trained) -> list[int]:
    """Tokens of a prompt: complete lines, then the line to be continued. Unknown symbols are reported."""
    tokenizer, vocab = trained.tokenizer, trained.vocab
    symbols = tokenizer.open_symbols(text)
    strange = sorted({symbol for symbol in symbols if symbol not in vocab})
    tokens = vocab.ids(symbols)  # raises if there is no <unk>
    if strange:
        shown = ", ".join(map(repr, strange[:5])) + (", ..." if len(strange) > 5 else "")
        print(f"tsm-generate: not in the dictionary, read as <unk>: {shown}", file=sys.stderr)
    return tokens


def write(args: argparse.Namespace, trained: Trained, prompt: list[int], sampling) -> None:
    """Prints the prompt, then one token after another."""
    from ..data.vocab import escape
    from ..generation import generate
    from ._text_stream import TextStream

    vocab, out = trained.vocab, sys.stdout
    stream = TextStream(trained.tokenizer)
    begin = prompt or [vocab.start]
    if not args.output_tokens:
        out.write("".join(stream.add(vocab[token]) for token in prompt))
        out.flush()
    for token in generate(trained.model, begin, args.length, sampling, args.seed):
        symbol = vocab[token]
        out.write(f"{token}\t{escape(symbol)}\n" if args.output_tokens else stream.add(symbol))
        out.flush()
    if not args.output_tokens:
        out.write(stream.close() + "\n")
        out.flush()


if __name__ == "__main__":
    raise SystemExit(main())
