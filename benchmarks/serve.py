"""tsm-bench serve: a load on tsm-serve, and on other kinds of servers for comparison.

    tsm-bench serve --idle 5000 --active 500 --rate 2 --minutes 10
    tsm-bench serve --beside all                    one call per request, polling, Triton: in turn
    tsm-bench serve --mix 8:0.95,256:0.05 --slow 0.02 --dying 0.02 --minutes 2
    tsm-bench serve --silence                       heavy requests instead, one by one, about two minutes

The load is open-loop: each active session sends messages of 8 tokens at its rate, whatever the server does, and
latencies (milliseconds) count from the time at which a message should have been sent. Each answer is checked
for its position in the stream, and the first one also for its numbers. "saturated", measured beforehand, is the
number of messages per second when each session sends its next message as soon as it gets an answer. The
generator is a separate process on the same machine, and its CPU time is shown. tsm-serve stores the state of
every session before it answers (SQLite); the others keep streams in memory only. Servers take turns, one at a
time. The model is as large as the demo's and has random weights from a fixed seed.

With --silence, requests at tsm-serve's limits are sent while /healthz is asked for every 20 ms: "silent" is the
longest time that one of these answers took, "idle" the same while nothing else is sent.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..plugin.command.bar import bar
from ..plugin.common.lazy import np
from .goals import Goal, goal_table
from .load.histogram import Histogram
from .load.plan import ARRIVALS, Load
from .load.servers import KINDS, OURS, running
from .load.silence import chosen, measured
from .machine import machine
from .pool import BIG, SMALL
from .results import aligned

if TYPE_CHECKING:
    from ..runtime import Model
    from .load.measure import Measured

SIZES: dict[str, dict[str, Any]] = {
    "118": {**SMALL, "decoder_layers": 1},
    "2x1024": {**BIG, "decoder_layers": 2},
    "12": {**SMALL, "decoder_hidden_size": 12, "decoder_layers": 1},
}
ROUNDS, SATURATION = 3, 5.0  # number of turns, and seconds of saturation, when servers are compared
MOST_SOCKETS = 9_900  # within tsm-serve's --max-connections
P99_MS, GROWTH, SILENT_MS = 100.0, 0.01, 100.0  # limits of the goals
SMOKE = {"sizes": "12", "active": 4, "idle": 3, "rate": 20.0, "seconds": 0.5, "ramp": 0.0}


def add_flags(parser: argparse.ArgumentParser) -> None:
    load = parser.add_argument_group("load")
    load.add_argument(
        "--active", type=int, default=64, metavar="N", help="sessions that send (default 64)"
    )
    load.add_argument(
        "--rate",
        type=float,
        default=2.0,
        metavar="X",
        help="messages per second of each (default 2)",
    )
    load.add_argument(
        "--think",
        type=float,
        metavar="S",
        help="instead of --rate: seconds from an answer to the next message",
    )
    load.add_argument("--arrivals", choices=ARRIVALS, default="poisson", help="default: poisson")
    load.add_argument(
        "--idle",
        type=int,
        default=0,
        metavar="N",
        help="sessions that send once, then hold a connection",
    )
    load.add_argument(
        "--mix",
        type=mix,
        default=((8, 1.0),),
        metavar="TOKENS:SHARE,...",
        help="lengths of messages (default 8:1)",
    )
    load.add_argument(
        "--slow",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of sessions that read only every 2 s",
    )
    load.add_argument(
        "--dying",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="share of sessions that drop their connection",
    )
    load.add_argument("--seconds", type=float, default=10.0, metavar="S", help="default: 10")
    load.add_argument("--minutes", type=float, metavar="M", help="instead of --seconds")
    load.add_argument(
        "--ramp",
        type=float,
        default=2.0,
        metavar="S",
        help="seconds before, not counted (default 2)",
    )
    load.add_argument(
        "--seed", type=int, default=1, metavar="N", help="for times and tokens (default 1)"
    )
    servers = parser.add_argument_group("servers")
    servers.add_argument(
        "--sizes", choices=SIZES, default="118", help="units of the model (default 118, the demo's)"
    )
    servers.add_argument(
        "--model", type=Path, metavar="FILE", help="instead of --sizes: a .tsm language model"
    )
    servers.add_argument(
        "--beside",
        nargs="+",
        choices=("all", *list(KINDS)[1:]),
        default=[],
        metavar="SERVER",
        help=f"all, or some of: {', '.join(list(KINDS)[1:])}",
    )
    servers.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="of tsm-serve (default: its own, or with --beside 1, as the others have)",
    )
    servers.add_argument(
        "--rounds", type=int, metavar="N", help=f"turns per server (default {ROUNDS} with --beside)"
    )
    servers.add_argument(
        "--saturation",
        type=float,
        metavar="S",
        help=f"seconds of saturation per turn (default {SATURATION:g} with --beside)",
    )
    parser.add_argument(
        "--silence",
        nargs="?",
        const="",
        metavar="TEXT",
        help="instead of a load: heavy requests, or those whose name has TEXT",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write a JSON file")
    parser.add_argument(
        "--smoke", action="store_true", help="a second of everything, with a tiny model"
    )


def mix(text: str) -> tuple[tuple[int, float], ...]:
    """The type of --mix."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        found = tuple((int(length), float(share)) for length, share in pairs)
    except ValueError:
        found = ()
    if not found or not all(length > 0 and 0 < share < math.inf for length, share in found):
        raise argparse.ArgumentTypeError(f"{text!r}; accepted: TOKENS:SHARE, such as 8:0.9,256:0.1")
    return found


def run(args: argparse.Namespace) -> int:
    if args.silence is not None:
        return silent(args)
    if args.smoke:
        vars(args).update(SMOKE, minutes=None, saturation=1.0, rounds=1)
    if args.minutes is not None:
        args.seconds = args.minutes * 60
    check(args)
    names = [OURS, *(list(KINDS)[1:] if "all" in args.beside else dict.fromkeys(args.beside))]
    args.rounds = args.rounds or (ROUNDS if len(names) > 1 else 1)
    if args.threads is None:
        args.threads = 1 if len(names) > 1 else 0
    if args.saturation is None:
        args.saturation = SATURATION if len(names) > 1 else 0.0
    where = machine()
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        rows = compared(args, names, Path(folder))
    goals = goals_of(rows[0], args.sizes)
    print(report(rows))
    print(goal_table(goals))
    if args.json:
        values = {"machine": where, "model": args.sizes if args.model is None else args.model.name}
        write(args.json, values | {"rounds": args.rounds, "rows": rows}, goals)
    return 0


def silent(args: argparse.Namespace) -> int:
    requests, where = chosen(args.silence), machine()
    print(", ".join(f"{k} {v}" for k, v in where.items()))
    with tempfile.TemporaryDirectory(prefix="tsm-bench-") as folder:
        rows = [vars(row) for row in measured(Path(folder), requests)]
    longest = max(row["silent_ms"] for row in rows)
    goal = Goal("tsm-serve: longest silence", SILENT_MS, False, longest, " ms")
    print(goal_table([goal]))
    if args.json:
        write(args.json, {"machine": where, "rows": rows}, [goal])
    return 0


def write(path: Path, values: dict[str, Any], goals: list[Goal]) -> None:
    from ..plugin.common.atomic import write_bytes

    values["goals"] = [{**vars(goal), "met": goal.met} for goal in goals]
    write_bytes(path, (json.dumps(values) + "\n").encode())


def compared(args: argparse.Namespace, names: Sequence[str], folder: Path) -> list[dict[str, Any]]:
    """One row per available server; the servers take turns, one at a time."""
    path, repository, model = prepared(args, folder, "triton" in names)
    there = []
    for name in names:
        if why := KINDS[name].why_not(repository):
            print(f"without {KINDS[name].title}: {why}")
        else:
            there.append(name)
    load, loads = load_of(args, model), []
    if args.saturation:
        good: dict[str, Any] = {"idle": 0, "slow": 0.0, "dying": 0.0}
        loads = [
            replace(load, think=0.0, seconds=args.saturation, ramp=min(1.0, load.ramp), **good)
        ]
    loads.append(load)
    turns: dict[str, list[list[Measured]]] = {name: [] for name in there}
    seconds = args.rounds * len(there) * sum(each.ramp + each.seconds for each in loads)
    with bar("load", math.ceil(seconds), "s") as update:
        for turn in range(args.rounds):
            for name in there:
                home = folder / f"{name}-{turn}"
                home.mkdir()
                with running(KINDS[name], path, repository, home, args.threads) as server:
                    found = [
                        one(server, each, f"s{i}-", model, update) for i, each in enumerate(loads)
                    ]
                turns[name].append(found)
    return [
        row(name, [turn[-1] for turn in found], [top for turn in found for top in turn[:-1]])
        for name, found in turns.items()
    ]


def check(args: argparse.Namespace) -> None:
    lowest = {"active": 1, "idle": 0, "seconds": 0.1, "ramp": 0, "slow": 0, "dying": 0, "seed": 0}
    lowest |= {"rounds": 1, "saturation": 0, "think": 0, "rate": 1e-6, "threads": 0}
    highest = {"slow": 1, "dying": 1, "threads": 1024}
    for name, low in lowest.items():
        value, high = getattr(args, name), highest.get(name, 1e9)
        if value is not None and not low <= value <= high:
            raise ValueError(f"--{name} {value}; accepted: {low:g} to {high:g}")
    if args.active + args.idle > MOST_SOCKETS:
        raise ValueError(
            f"--active {args.active} and --idle {args.idle}; accepted: at most {MOST_SOCKETS:,} together"
        )
    if args.slow + args.dying > 1:
        raise ValueError(
            f"--slow {args.slow} and --dying {args.dying}; accepted: at most 1 together"
        )


def load_of(args: argparse.Namespace, model: Model) -> Load:
    names = ("active", "rate", "think", "arrivals", "idle", "ramp", "mix", "slow", "dying", "seed")
    same = {name: getattr(args, name) for name in names}
    return Load(seconds=args.seconds, vocabulary=model.output_size, **same)


def prepared(
    args: argparse.Namespace, folder: Path, triton: bool
) -> tuple[Path, Path | None, Model]:
    """The model as a file, as a Triton repository, and loaded so that answers can be checked."""
    from ..runtime import Model

    path, repository = args.model, None
    if path is None:
        import torch

        from ..export.tsm.package import package
        from ..plugin import build_model

        torch.manual_seed(1)
        made = build_model("plstm_lm", **SIZES[args.sizes])
        path = folder / "m.tsm"
        package(made, path)
        if triton:
            repository = triton_repository(made, folder / "repository")
    model = Model.load(path)
    if model.family != "lm":
        raise ValueError(f"{path} is a {model.family}; accepted: a language model")
    return path, repository, model


def triton_repository(model: Any, folder: Path) -> Path:
    """The repository that `tsm-export triton` writes, without the ONNX model, which needs another backend."""
    import shutil

    from ..export.triton.repository import export_triton
    from .load.triton import place_runtime

    export_triton(model, folder)
    for made in folder.iterdir():
        if made.name.endswith("_onnx"):
            shutil.rmtree(made)
        else:
            place_runtime(made / "1")
    return folder


def one(server: Any, load: Load, prefix: str, model: Model, update: Any) -> Measured:
    from .load.measure import measure

    tokens = [i % load.vocabulary for i in range(8)]
    shown = 0

    def compare(talk: str, numbers: Sequence[float]) -> None:
        stream = model.create_stream()
        right = stream.feed(tokens)[-1] if talk == "triton" else stream.score(tokens)
        if not np.array_equal(np.array(numbers, np.float32), right):
            raise RuntimeError(f"{server.target} does not give the answers of a single stream")

    def progress(at: float) -> None:
        nonlocal shown
        update(int(at) - shown)
        shown = int(at)

    return measure(server, load, prefix, tokens, compare, progress)


def row(name: str, turns: list[Measured], tops: list[Measured]) -> dict[str, Any]:
    """What is kept of a server."""
    return {
        "server": name,
        "title": KINDS[name].title,
        "saturated": [top.plain(short=True) for top in tops],
        "load": merged(turns).plain(),
    }


def merged(turns: list[Measured]) -> Measured:
    """Merges the turns of a server into one; memory is that of the last turn."""
    last, errors = turns[-1], Counter[str]()
    for turn in turns:
        errors.update(turn.errors)
    total: dict[str, Any] = {
        name: sum(getattr(turn, name) for turn in turns)
        for name in (
            "messages",
            "tokens",
            "in_all",
            "abandoned",
            "server_cpu",
            "client_cpu",
            "wall",
        )
    }
    histograms: dict[str, Any] = {
        name: sum((getattr(turn, name) for turn in turns), Histogram())
        for name in ("latency", "slow", "late")
    }
    load = replace(last.load, seconds=sum(turn.load.seconds for turn in turns))
    return replace(last, load=load, errors=dict(errors), **total, **histograms)


def goals_of(ours: dict[str, Any], sizes: str) -> list[Goal]:
    """The goals; the one for latency applies to the demo's model only."""
    load = ours["load"]
    growth, p99 = load["memory growth after minute 2"], load["latency ms"]["p99"]
    percent = None if growth is None else 100 * growth
    goals = [
        Goal("tsm-serve: errors", 0, False, sum(load["errors"].values()), ""),
        Goal("tsm-serve: growth of memory after minute 2", 100 * GROWTH, False, percent, "%"),
    ]
    if sizes != "2x1024":
        goals.append(Goal("tsm-serve: p99 from the intended time", P99_MS, False, p99, " ms"))
    return goals


def report(rows: list[dict[str, Any]]) -> str:
    """A table of the servers, each compared with the first; then the load and the errors."""
    heads = [
        "server",
        "saturated/s",
        "ours x",
        "at /s",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "/ ours",
    ]
    heads += ["server us", "client us", "MB", "errors"]
    lines = [heads]
    for one in rows:
        load, ms = one["load"], one["load"]["latency ms"]
        ours = rows[0]["load"]["latency ms"]["p99"]
        top, best = saturated(one), saturated(rows[0])
        lines.append([
            one["title"],
            "" if top is None else f"{top:,.0f}",
            "" if not top or best is None else f"{best / top:.2f}",
            f"{load['messages per second']:,.0f}",
            *(f"{ms[name]:,.1f}" for name in ms),
            f"{ms['p99'] / ours:.2f}",
            f"{load['server CPU us per message']:,.0f}",
            f"{load['client CPU us per message']:,.0f}",
            f"{load['samples'][-1][1] / 1e6:,.0f}",
            f"{sum(load['errors'].values()):,}",
        ])  # fmt: skip
    text = aligned(lines)
    for one in rows:
        text += "\n" + described(one)
    return text


def saturated(one: dict[str, Any]) -> float | None:
    """Messages per second, averaged over the turns."""
    found = [top["messages per second"] for top in one["saturated"]]
    return sum(found) / len(found) if found else None


def described(one: dict[str, Any]) -> str:
    """One line of text: CPU cores used, lateness, footprint, errors."""
    load = one["load"]
    parts = [
        f"server {load['server CPU share']:.2f} cores, generator {load['client CPU share']:.2f}"
    ]
    if late := load["sent late ms"]:
        parts.append(f"sent late by p99 {late['p99']:.1f} ms, at most {late['max']:.1f}")
    if slow := load["slow readers, latency ms"]:
        parts.append(f"slow readers p99 {slow['p99']:,.0f} ms")
    if load["abandoned"]:
        parts.append(f"{load['abandoned']:,} messages of dying clients not waited for")
    parts += [
        f"{name} {size / 1e3:.1f} kB"
        for name, size in load["footprint"].items()
        if size is not None
    ]
    parts += [f"{count:,} x {kind}" for kind, count in load["errors"].items()]
    return f"{one['title']}: " + "; ".join(parts)
