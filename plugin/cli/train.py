"""tsm-train: train a language model, a classifier or a tagger.

    tsm-train --arch plstm_lm                                      the built-in generated corpus
    tsm-train data/ptb-char --arch plstm_lm_ptb_char --batch-size 128 --tokens-per-sample 150
    tsm-train --task copy --arch plstm_tagger --copy-length 200 --optimizer rmsprop
    tsm-train --list                                               architectures, tasks, optimizers

If run again, it continues from --save-dir/checkpoint_last.pt. On Ctrl-C, SIGTERM, SIGHUP (unless ignored, as
with nohup), SIGUSR1, SIGXCPU or a closed output pipe it finishes the step, saves, and exits with code 130.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command.command import INTERRUPTED, Parser, UsageError, command
from ..command.flags import named_as_flags, seeds
from ..command.synonyms import REASONS, unknown_flag
from ..common.file_kinds import MODELS, file_kind
from ..common.inputs import keep_inputs

if TYPE_CHECKING:
    from ..train.plan import Plan


@command("tsm-train")
def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    choice = choose(argv)
    if choice.list:
        print(listing())
        return 0
    plan = parse(argv, choice)
    from ..train.run import run
    from ._train_seeds import run_seeds

    last, data = plan.loop.restore_file, getattr(plan.task_config, "data", None)
    for flag, file in (("--log-file", plan.loop.log_file), ("--csv-file", plan.loop.csv_file)):
        keep_inputs(flag, [file] if file else [], [last, Path(plan.loop.save_dir, last), data])
    with named_as_flags(plan.configs()):
        trainer = run_seeds(plan, choice.seeds) if choice.seeds else run(plan)
    if trainer.progress.lost:  # discard what Python would still print at exit
        for stream in (sys.stdout, sys.stderr):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    # Only the first process returns this code: if another process did, a launcher would kill the first.
    return INTERRUPTED if trainer.interrupted and trainer.world.first else 0


def first_parser() -> argparse.ArgumentParser:
    """The flags that determine which other flags exist."""
    p = Parser(
        prog="tsm-train",
        usage="tsm-train [DATA] --arch ARCH [flags]",
        add_help=False,
        allow_abbrev=False,
    )
    group = p.add_argument_group("what to train")
    group.add_argument("--arch", "-a", metavar="NAME", help="architecture, e.g. plstm_lm")
    group.add_argument(
        "--task",
        metavar="NAME",
        help="default: the one that the data, or else the architecture, is for",
    )
    group.add_argument("--optimizer", metavar="NAME", default="adam", help="default: adam")
    group.add_argument("--lr-scheduler", metavar="NAME", default="fixed", help="default: fixed")
    group.add_argument("--criterion", metavar="NAME", default="", help="default: the task's")
    group.add_argument("--user-dir", metavar="DIR", help="folder with your own cells, tasks, ...")
    group.add_argument(
        "--config",
        metavar="FILE",
        help="YAML file with settings; flags on the command line take precedence",
    )
    group.add_argument(
        "--recipe",
        metavar="NAME",
        help="settings of a paper: awd-ptb, awd-wt2, mts-ptb, mts-wt2 or EXPERIMENT/VARIANT",
    )
    group.add_argument(
        "--seeds",
        type=seeds,
        metavar="A-B",
        help="train once per seed, each in its own folder, then report mean and standard deviation",
    )
    group.add_argument("--list", action="store_true", help="list all names and exit")
    group.add_argument("-h", "--help", action="store_true", help="show this text and exit")
    return p


def choose(argv: Sequence[str]) -> argparse.Namespace:
    """First pass over the flags: reads only names, and loads --user-dir and installed plug-ins."""
    choice, _ = first_parser().parse_known_args(argv)
    choice.words, choice.data = presets(choice)
    choice, _ = first_parser().parse_known_args([*choice.words, *argv], choice)
    from ..user_dir import import_user_dir, load_entry_points

    load_entry_points()
    if choice.user_dir:
        import_user_dir(choice.user_dir)
    return choice


def presets(choice: argparse.Namespace) -> tuple[list[str], str | None]:
    """The flags from --recipe and --config (the latter take precedence), and the data folder if they name
    one."""
    from ..train.plan import read_config
    from ._train_presets import as_words, recipe

    settings: dict[str, Any] = recipe(choice.recipe) if choice.recipe else {}
    if choice.config:
        given = read_config(choice.config)
        settings |= {name.replace("-", "_"): value for name, value in given.items()}
        for name in ("config", "recipe", "list", "help", "version"):
            if name in settings:
                raise UsageError(f"--config {choice.config}: {name} belongs on the command line")
    data = settings.pop("data", None)
    if not isinstance(data, str | None):
        raise UsageError(f"--config {choice.config}: data is {data!r}; accepted: a path")
    return as_words(settings), data or None


def parse(argv: Sequence[str], choice: argparse.Namespace) -> Plan:
    """Second pass over the flags: parses all flags of the chosen architecture, task, optimizer and schedule."""
    from ..criterions import CRITERIONS
    from ..train.plan import make_plan, setting_classes

    arch, task = check_names(choice, argv)
    if choice.criterion:
        CRITERIONS.get(choice.criterion)
    settings = setting_classes(arch, task, choice.optimizer, choice.lr_scheduler)
    parser = full_parser(arch, settings)
    flags(parser, choice.words)  # checked alone, since argv could supply a missing last value
    values = flags(parser, [*choice.words, *argv])
    if choice.data:
        values.setdefault("data", choice.data)
    check_data(values.get("data"), task)
    with named_as_flags(settings):
        return make_plan(
            arch,
            task,
            values,
            choice.optimizer,
            choice.lr_scheduler,
            choice.criterion,
            choice.user_dir or "",
        )


def data_folder(argv: Sequence[str]) -> str | None:
    """The argument that is a preprocessed folder. It is needed before the other flags are known."""
    from ..data.staged_folder import META

    words = (word.removeprefix("--data=") for word in argv)
    return next((word for word in words if os.path.isfile(os.path.join(word, META))), None)


def plain_word(argv: Sequence[str]) -> str | None:
    """The first argument that is neither a flag nor, as far as one can tell, the value of one."""
    for before, word in zip(("", *argv), argv, strict=False):
        if not word.startswith("-") and (before == "--data" or not before.startswith("-")):
            return word
    return None


def check_names(choice: argparse.Namespace, argv: Sequence[str]) -> tuple[str, str]:
    """Architecture and task, which must belong to the same family."""
    from ..archs import get_architecture
    from ..tasks import TASKS
    from ..train.plan import default_task, task_of_folder, why_no_task

    if choice.arch is None and not choice.help:
        task = choice.task or task_of_folder(data_folder(argv) or choice.data)
        family = TASKS.get(task).family if task else "lm"
        raise UsageError(
            f"--arch is missing; e.g. --arch plstm_{family} (tsm-train --list shows all)"
        )
    if choice.arch is None:
        family = TASKS.get(choice.task).family if choice.task else "lm"
        choice.arch = f"plstm_{family}"
    family = get_architecture(choice.arch).model
    folder = data_folder(argv) or choice.data
    wanted = choice.task or task_of_folder(folder)
    if wanted and TASKS.get(wanted).family != family and (fitting := tasks_of(family)):
        trains = TASKS.get(wanted).family
        says = f"--task {wanted}"
        others = f", or with --arch {choice.arch} --task {' or '.join(fitting)}"
        if not choice.task:
            says, others = f"{folder} was preprocessed for {wanted}, which", ""
        raise UsageError(
            f"{says} trains a {trains}, --arch {choice.arch} is a {family}; accepted: "
            f"--arch {twin(choice.arch, family, trains)}{others}"
        )
    choice.task = choice.task or default_task(family, folder)
    if not choice.task:
        fitting = tasks_of(family)
        raise UsageError(
            f"--task is missing; --arch {choice.arch} goes with {', '.join(fitting)}"
            f"{why_no_task(choice.data or plain_word(argv))}"
        )
    return choice.arch, choice.task


def tasks_of(family: str) -> list[str]:
    """Tasks that train a model of the family."""
    from ..tasks import TASKS

    return [name for name in TASKS if TASKS.get(name).family == family]


def twin(arch: str, family: str, wanted: str) -> str:
    """The architecture of another family with the same preset or else of the same kind."""
    from ..archs import list_architectures

    kind = arch.partition(f"_{family}")[0]
    names = (arch.replace(f"_{family}", f"_{wanted}"), f"{kind}_{wanted}", f"plstm_{wanted}")
    known = list_architectures(wanted)
    return next((name for name in names if name in known), " or ".join(known))


def full_parser(arch: str, settings: list[type]) -> argparse.ArgumentParser:
    """Adds a flag for every setting. If two settings have the same name (seed), they share one flag."""
    from ..archs import get_architecture
    from ..config import add_flags

    preset: Mapping[str, Any] = get_architecture(arch).preset({})
    parser = Parser(
        prog="tsm-train",
        usage="tsm-train [DATA] --arch ARCH [flags]",
        description=f"Flags for --arch {arch}; other architectures, tasks and optimizers have different ones.",
        parents=[first_parser()],
        add_help=False,
        allow_abbrev=False,
        conflict_handler="resolve",
    )
    for config in settings:
        add_flags(parser, config, preset)
    return parser


def flags(parser: argparse.ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """The given flags. The one argument that is not a flag is the data folder."""
    found, rest = parser.parse_known_args(argv)
    if found.help:
        parser.print_help()
        raise SystemExit(0)
    for word in rest:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            if flag in REASONS:
                raise UsageError(f"{flag}: {REASONS[flag]}")
            if elsewhere := choice_with(flag):
                raise UsageError(f"{flag} belongs to {elsewhere}")
            raise UsageError(unknown_flag(flag, names_in(parser), parser.prog))
    if len(rest) > 1:
        raise UsageError(f"{' '.join(rest)!r}; accepted: one data folder")
    if rest and getattr(found, "data", rest[0]) != rest[0]:
        raise UsageError(f"{rest[0]!r} and --data {found.data!r}; accepted: one data folder")
    return {**vars(found), **({"data": rest[0]} if rest else {})}


def check_data(data: str | None, task: str) -> None:
    """Raises UsageError if a model is given as data. User-defined tasks may read anything."""
    from ..tasks import TASKS

    kind = file_kind(data) if data else ""
    if kind in MODELS and TASKS.get(task).__module__.startswith(
        f"{__package__.rpartition('.')[0]}."
    ):
        raise UsageError(
            f"{data} is {kind}, not data; to continue from a checkpoint: --restore-file FILE, to start "
            "from its weights: --finetune-from-model FILE"
        )


def choice_with(flag: str) -> str:
    """The task, optimizer, schedule or family that has this flag; empty if none has it."""
    from ..config import add_flags
    from ..models.build import MODELS, family_config
    from ..tasks import TASKS
    from ..train.optim import OPTIMIZERS
    from ..train.schedules import LR_SCHEDULERS

    tables: dict[str, dict[str, type]] = {
        "--task": {name: TASKS.get(name).Config for name in TASKS},
        "--optimizer": {name: OPTIMIZERS.get(name).config for name in OPTIMIZERS},
        "--lr-scheduler": {name: LR_SCHEDULERS.get(name).Config for name in LR_SCHEDULERS},
        "an --arch that is a": {name: family_config(name) for name in MODELS},
    }
    for choice, table in tables.items():
        having = []
        for name, config in table.items():
            parser = Parser(add_help=False)
            add_flags(parser, config)
            if flag in names_in(parser):
                having.append(name)
        if having:
            return f"{choice} {' or '.join(having)}"
    return ""


def names_in(parser: argparse.ArgumentParser) -> list[str]:
    """All flags of a parser, with all aliases."""
    return [name for action in parser._actions for name in action.option_strings]


def listing() -> str:
    """Every name that a flag accepts, with a one-line description."""
    from ..archs import list_architectures
    from ..criterions import CRITERIONS
    from ..tasks import TASKS
    from ..train.optim import OPTIMIZERS
    from ..train.schedules import LR_SCHEDULERS

    tables: dict[str, dict[str, str]] = {
        "--arch": {name: about_architecture(name) for name in list_architectures()},
        "--task": {name: first_line(TASKS.get(name)) for name in TASKS},
        "--optimizer": {name: first_line(OPTIMIZERS.get(name).make) for name in OPTIMIZERS},
        "--lr-scheduler": {name: first_line(LR_SCHEDULERS.get(name)) for name in LR_SCHEDULERS},
        "--criterion": {name: first_line(CRITERIONS.get(name)) for name in CRITERIONS},
    }
    rows = []
    for flag, table in tables.items():
        width = max(map(len, table))
        rows += [flag, *(f"  {name:<{width}}  {text}".rstrip() for name, text in table.items())]
    return "\n".join(rows)


def first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]


def about_architecture(name: str) -> str:
    """Family, cell, size and initialiser of an architecture, if the preset sets them."""
    from ..archs import config_class, get_architecture

    architecture = get_architecture(name)
    config = config_class(name)
    values = {f.name: f.default for f in dataclasses.fields(config)}
    values |= architecture.preset({})
    layers, units = values["decoder_layers"], values["decoder_hidden_size"]
    units = ",".join(map(str, units)) if isinstance(units, (tuple, list)) else units
    start = "" if values["init"] == "default" else f", init {values['init']}"
    size = f"{units} units" if layers == 1 else f"{layers} layers of {units} units"
    return f"{architecture.model}: cell {values['cell']}, {size}{start}"


if __name__ == "__main__":
    raise SystemExit(main())
