"""tsm-analyze: the papers' analyses for trained models, as numbers and figures.

    tsm-analyze list                                         every analysis and what it needs
    tsm-analyze timescales runs/lm/checkpoint_best.pt    one of them
    tsm-analyze frequency-bins A.pt B.pt --data data/ptb     two models in one figure, where that makes sense
    tsm-analyze live CKPT --output report.html               all that apply, on one page
    tsm-analyze live --run checkpoints --output report.html  the same for a run's best checkpoint

A single analysis writes NAME.json, NAME.csv, NAME.png and NAME.svg into --output. If it does not apply to the
model, the command says why and exits with code 2. `tsm-analyze WHAT --help` shows the flags of an analysis.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command.command import UsageError, command
from ..command.flags import (
    add_device_flags,
    integer,
    load_plugins,
    make_parser,
    named_as_flags,
    strictly,
)
from ..common.inputs import keep_inputs
from ..config import add_flags, build

if TYPE_CHECKING:
    from ..analysis.findings.base import About, Analysis
    from ..analysis.probes.subject import Subject

LIST, LIVE = "list", "live"
BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"


@command("tsm-analyze")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    if not argv or argv[0].startswith("-"):
        parser = make_parser("tsm-analyze", __doc__, "tsm-analyze WHAT [CKPT ...] [flags]")
        strictly(parser, argv or ["--help"])
        raise UsageError("the first word says what to do: list, live or an analysis")
    what = argv[0]
    load_plugins(_user_dir(argv))
    from ..analysis.catalogue import about_all, all_analyses, get_analysis
    from ..analysis.findings.base import ANALYSES

    if what == LIST:
        parser = make_parser("tsm-analyze list", __doc__, "tsm-analyze list [--user-dir DIR]")
        parser.add_argument("--user-dir", metavar="DIR", help="folder with analyses of your own")
        strictly(parser, argv[1:])
        print("\n".join(list_lines(about_all())))
        return 0
    if what != LIVE:
        ANALYSES.check(what)
    for package in ("matplotlib", "scipy"):  # fail before the work, not after it
        importlib.import_module(package)
    return live(argv[1:], all_analyses()) if what == LIVE else single(get_analysis(what), argv[1:])


def single(analysis: Analysis, argv: Sequence[str]) -> int:
    """Runs one analysis on one or more models."""
    from ..analysis.findings.results import run, write

    text = f"{analysis.title} ({analysis.source})."
    parser = make_parser(
        f"tsm-analyze {analysis.name}", text, f"tsm-analyze {analysis.name} [CKPT ...] [flags]"
    )
    add_common_flags(parser)
    parser.add_argument(
        "--output", metavar="DIR", type=Path, default=Path("analysis"), help="output folder"
    )
    add_flags(parser, analysis.settings)
    args = strictly(parser, argv)
    subjects = open_subjects(args, analysis)
    with named_as_flags([analysis.settings]):
        settings: Any = build(analysis.settings, vars(args), strict=False)
        result = run(analysis, subjects, settings)
    print(result.text())
    for path in write(result, args.output, keep=inputs_of(args)):
        print(path)
    return 0


def live(argv: Sequence[str], analyses: list[Analysis]) -> int:
    """Writes one page with all analyses that apply."""
    from ..analysis.catalogue import get_analysis
    from ..analysis.findings.report import analyse_all, build_page
    from ..common.atomic import write_bytes

    parser = make_parser(
        "tsm-analyze live",
        "All analyses that apply to a model, in one self-contained HTML file.",
        "tsm-analyze live [CKPT] [--run DIR] [flags]",
    )
    add_common_flags(parser)
    parser.add_argument(
        "--output", metavar="FILE", type=Path, default=Path("report.html"), help="the page"
    )
    parser.add_argument(
        "--skip",
        metavar="NAME,...",
        default="",
        help="analyses to omit (see tsm-analyze list)",
    )
    args = strictly(parser, argv)
    skipped = {get_analysis(name).name for name in args.skip.split(",") if name}
    if args.output.is_dir() or not args.output.parent.is_dir():
        raise UsageError(f"--output {args.output} is not a file in an existing folder")
    if not args.checkpoints and args.run is None:
        raise UsageError("no checkpoint was given: tsm-analyze live CKPT, or --run DIR")
    keep_inputs("--output", [args.output], inputs_of(args))
    subjects = open_subjects(args)
    if len(subjects) > 1:
        raise UsageError(
            "live takes one checkpoint; --run DIR gives the others of its training run"
        )
    wanted = [analysis for analysis in analyses if analysis.name not in skipped]
    results, refusals = analyse_all(subjects[0], wanted, say)
    write_bytes(args.output, build_page(subjects[0], results, refusals).encode())
    print(f"{args.output}: {len(results)} analyses, {len(refusals)} that do not apply")
    for refusal in refusals:
        print(f"  {refusal.reason}")
    return 0


def add_common_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoints", nargs="*", metavar="CKPT", help="checkpoint of tsm-train")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--run",
        metavar="DIR",
        type=Path,
        help="save folder of its training run, for timescales over training (default: the folder of CKPT)",
    )
    model.add_argument(
        "--user-dir", metavar="DIR", help="the --user-dir it was trained with, if any"
    )
    add_device_flags(model)
    data = parser.add_argument_group("data")
    data.add_argument(
        "--data", metavar="DIR", help="preprocessed folder (default: the training data)"
    )
    data.add_argument("--split", default="test", metavar="NAME", help="test (default) or valid")
    data.add_argument(
        "--steps", type=integer(1), default=4000, metavar="N",
        help="steps of the split to examine in float64 (default: 4000)",
    )  # fmt: skip
    data.add_argument(
        "--rows", type=integer(1), default=128, metavar="N",
        help="sequences, or pieces of text, to evaluate in each ablation (default: 128)",
    )  # fmt: skip
    data.add_argument("--seed", type=integer(0), default=0, metavar="N", help="random seed")


def inputs_of(args: argparse.Namespace) -> list[Path | None]:
    """The files that the command reads."""
    run = [] if args.run is None else sorted(args.run.glob("*.pt"))
    return [*map(Path, args.checkpoints), *run, args.data and Path(args.data)]


def open_subjects(args: argparse.Namespace, analysis: Analysis | None = None) -> list[Subject]:
    """Opens the given models, each with its data and its run."""
    from ..analysis.probes.subject import Subject
    from ..analysis.timescales_over_training import checkpoints_of
    from ..common.device import choose_device
    from ..trained import open_trained

    if args.run is not None and not args.run.is_dir():
        raise FileNotFoundError(f"--run {args.run}: no such folder")
    paths = [Path(path) for path in args.checkpoints]
    if not paths and args.run is not None:
        paths = [best_of(args.run)]
    common: dict[str, Any] = dict(
        data=args.data, split=args.split, steps=args.steps, rows=args.rows, seed=args.seed
    )
    if not paths:
        if analysis is None or not analysis.bare:
            raise UsageError("no checkpoint was given: tsm-analyze WHAT CKPT")
        return [Subject(None, **common)]
    if len(paths) > 1 and analysis is not None and not analysis.several:
        raise UsageError(f"{analysis.name} takes one checkpoint; {len(paths)} were given")
    if len(paths) > 1 and args.run is not None:
        raise UsageError(
            "--run accepts only one checkpoint; with several, each one's own folder is used"
        )
    device = choose_device(args.device, args.cpu)
    trained = [open_trained(path, device) for path in paths]
    labels = distinct([str(one.config["model"]["arch"]) for one in trained], paths)
    return [
        Subject(
            one, device=device, run=checkpoints_of(args.run or path.parent), label=name, **common
        )
        for one, path, name in zip(trained, paths, labels, strict=True)
    ]


def best_of(folder: Path) -> Path:
    """The best checkpoint of a run, or else the last one."""
    for name in (BEST, LAST):
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder} has no {BEST} and no {LAST}")


def distinct(names: Sequence[str], paths: Sequence[Path]) -> list[str]:
    """Names of the models. If two are equal, the folder or file that distinguishes them is added."""
    if len(set(names)) == len(names):
        return list(names)
    for more in ([p.parent.name for p in paths], [p.stem for p in paths], [str(p) for p in paths]):
        longer = [f"{name} ({extra})" for name, extra in zip(names, more, strict=True)]
        if len(set(longer)) == len(longer):
            return longer
    raise UsageError("the same checkpoint was given twice")


def list_lines(analyses: Sequence[About]) -> list[str]:
    """Two lines per analysis: its title, and what it needs."""
    width = max(len(a.name) for a in analyses) + 2
    lines = []
    for a in analyses:
        needs = ", ".join(need.words for need in a.needs) or ("nothing" if a.bare else "any model")
        lines.append(f"{a.name:<{width}}{a.title} ({a.source})")
        lines.append(f"{'':<{width}}needs: {needs}{'; takes several models' if a.several else ''}")
    return lines


def say(name: str) -> None:
    """Prints the name of the current analysis if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"  {name}", file=sys.stderr)


def _user_dir(argv: Sequence[str]) -> str | None:
    """Reads --user-dir before the other flags, since the folder may register its own analyses."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--user-dir")
    return early.parse_known_args(argv)[0].user_dir


if __name__ == "__main__":
    raise SystemExit(main())
