"""tsm-serve MODEL...: a server of long-lived streams.

    tsm-serve demo.tsm                      on http://127.0.0.1:8080, states in a SQLite file
    tsm-serve en=a.tsm de=b.tsm --store redis://localhost:6379/0
    tsm-serve --new-token ann >> tokens.txt; tsm-serve demo.tsm --host 0.0.0.0 --token-file tokens.txt

SIGTERM ends it once the running requests are done; SIGHUP reloads models and tokens.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from .. import TsmError, _core
from .transport.access import new_token
from .transport.limits import CHOICES, Keeping, Limits

PACKAGES = ("uvicorn", "httptools", "uvloop", "websockets", "prometheus_client")


class UsageError(ValueError):
    """The flags are wrong."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return _main(sys.argv[1:] if argv is None else argv)
    except ModuleNotFoundError as error:
        if error.name not in (*PACKAGES, "redis", "grpc") or os.environ.get("TSM_DEBUG"):
            raise
        if error.name in ("redis", "grpc"):
            return _fail(str(error))
        return _fail(f"{error.name} is missing: needs pip install 'timescale-models[serve]'")
    except (ValueError, OSError, TsmError) as error:
        if os.environ.get("TSM_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename and error.strerror:
            return _fail(f"{error.filename}: {error.strerror}")
        return _fail(str(error))


def _fail(message: str) -> int:
    print(f"tsm-serve: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _main(argv: Sequence[str]) -> int:
    args = parser().parse_args(argv)
    if args.new_token is not None:
        token, line = new_token(args.new_token)
        print(f"token of {args.new_token}, shown once: {token}", file=sys.stderr)
        print(line)
        return 0
    if not args.model:
        raise UsageError("no model; accepted: tsm-serve FILE.tsm, or NAME=FILE.tsm, one or more")
    from .server import Options, Process
    from .streams.models import Source

    limits = Limits(**{one.name: getattr(args, f"max_{one.name}") for one in fields(Limits)})
    options = Options(
        sources=[Source.parse(text) for text in args.model],
        store=args.store or default_store(),
        host=args.host,
        port=args.port,
        grpc_port=args.grpc_port,
        token_file=args.token_file,
        hosts=args.allow_host,
        origins=args.allow_origin,
        peers=args.peer,
        dtype=args.dtype,
        threads=args.threads,
        grace=args.grace,
        log=args.log,
        limits=limits,
        keeping=Keeping(
            seconds=args.ttl,
            history=args.history,
            every=args.history_every,
            replay=args.replay,
            same_level=args.same_level,
            behind=args.store_writes == "behind",
        ),
    )
    return Process(options).run()


def default_store() -> str:
    """A SQLite file in $XDG_STATE_HOME/tsm, or ~/.local/state/tsm."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return f"sqlite:{Path(state) / 'tsm' / 'serve.db'}"


def parser() -> argparse.ArgumentParser:
    p = Parser(
        prog="tsm-serve",
        description=(__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    p.add_argument("--version", action="version", version=f"%(prog)s (tsm {_core.__version__})")
    p.add_argument(
        "model",
        nargs="*",
        metavar="[NAME=]FILE",
        help="a .tsm file; further files of the same NAME are older versions",
    )
    p.add_argument(
        "--host", default="127.0.0.1", help="addresses beyond loopback need --token-file"
    )
    p.add_argument("--port", type=_whole(0, 65535), default=8080, help="0: any free port")
    p.add_argument(
        "--grpc-port",
        type=_whole(0, 65535),
        help="also serve KServe v2 over gRPC; 0: any free port",
    )
    p.add_argument(
        "--store",
        metavar="WHERE",
        help="memory, sqlite:FILE, redis://HOST:PORT/DB (default: sqlite:~/.local/state/tsm/serve.db)",
    )
    p.add_argument(
        "--store-writes",
        default="through",
        choices=["through", "behind"],
        help="store a state before its request is answered, or soon after (faster, but a kill may lose answered"
        " steps after the `durable_position` of an answer)",
    )
    p.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="tokens that are accepted: lines NAME SHA256",
    )
    p.add_argument(
        "--new-token", metavar="NAME", help="make a token, print its line for the file, and exit"
    )
    p.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name accepted in Host, besides those of loopback",
    )
    p.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="URL",
        help="another server whose pages may send requests from a browser",
    )
    p.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="URL",
        help="another server with the same store: the page at / can move a session there and back",
    )
    p.add_argument("--dtype", default="float32", choices=CHOICES["dtype"])
    p.add_argument(
        "--threads",
        type=_whole(0, 1024),
        default=0,
        metavar="N",
        help="per model; 0, the default: one per core, at most 8, if a layer has 512 units or more, else 1",
    )
    p.add_argument(
        "--ttl",
        type=_of(Keeping, "seconds"),
        default=0.0,
        metavar="SECONDS",
        help="forget a session this long after its last request (default: never)",
    )
    p.add_argument(
        "--history",
        type=_of(Keeping, "history"),
        default=Keeping.history,
        metavar="N",
        help="states of a session to keep, to go back to (default 16)",
    )
    p.add_argument(
        "--history-every",
        type=_of(Keeping, "every"),
        default=Keeping.every,
        metavar="N",
        help="steps between these states (default 64)",
    )
    p.add_argument(
        "--replay",
        type=_of(Keeping, "replay"),
        default=0,
        metavar="N",
        help="keep the last N inputs of a session, and rebuild its state from them for new weights",
    )
    p.add_argument(
        "--same-level",
        action="store_true",
        help="refuse a state that another instruction set computed",
    )
    p.add_argument(
        "--grace",
        type=_number(0, 86_400),
        default=10.0,
        metavar="SECONDS",
        help="for running requests to finish after SIGTERM (default 10)",
    )
    p.add_argument(
        "--log",
        default="info",
        choices=CHOICES["log"],
        help="JSON lines on stderr: every request, or only start, reload and end",
    )
    limits = p.add_argument_group("limits; an error names the limit that was exceeded")
    for one in fields(Limits):
        text = f"{one.metadata['help']} (default {one.default:,.10g})"
        limits.add_argument(
            f"--max-{one.name}",
            type=_of(Limits, one.name),
            default=one.default,
            metavar="N",
            help=text,
        )
    return p


def _of(settings: type[Limits | Keeping], name: str) -> Any:
    (one,) = (one for one in fields(settings) if one.name == name)
    return (_number if isinstance(one.default, float) else _whole)(*one.metadata["range"])


def _whole(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: an integer from {low} to {high}")
        return int(text)

    return parse


def _number(low: float, high: float) -> Any:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}; accepted: {low:g} to {high:g}")
        return value

    return parse


if __name__ == "__main__":
    sys.exit(main())
