"""Common behaviour of all commands: bad input gives one sentence on stderr and exit code 2.

    exit 0 done   1 the work failed (a loss of NaN)   2 bad input, or a package is missing
         130 interrupted: Ctrl-C, or another signal if a command saves or cleans up before it exits
         141 the output pipe was closed (| head)

With TSM_DEBUG=1 in the environment the traceback is shown instead. Every command has --version.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

from ... import __version__
from ..extras import extra_of, how_to_install
from .spinning import spin_briefly

INTERRUPTED = 130
NO_READER = 141  # 128 + SIGPIPE, as for any program piped into `head`

MEASURING = {"tsm-bench"}
"""Commands whose rivals should run with the settings that they have elsewhere."""

Main = Callable[[Sequence[str]], int]


class Command(Protocol):
    """What a console script calls; without argv it uses the arguments of the process."""

    def __call__(self, argv: Sequence[str] | None = None) -> int: ...


class UsageError(ValueError):
    """The flags are invalid or cannot be combined."""


class Parser(argparse.ArgumentParser):
    """Raises errors instead of printing the usage; does not accept abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        text = f"%(prog)s (tsm {__version__})"
        self.add_argument("--version", action="version", version=text)

    def print_help(self, file: Any = None) -> None:
        """Unlike argparse's own method, does not suppress output errors."""
        print(self.format_help(), end="", file=file)

    def error(self, message: str) -> NoReturn:
        missing = message.removeprefix("the following arguments are required: ")
        if missing != message:
            message = f"missing: {missing}; accepted: {self.usage or self.prog}"
            listed = [a for a in self._actions if a.choices and a.metavar in missing.split(", ")]
            message += "".join(
                f"; {a.metavar}: {', '.join(map(str, a.choices or ()))}" for a in listed
            )
        raise UsageError(message)


def command(prog: str) -> Callable[[Main], Command]:
    """Decorator for a command's main function, which takes argv and returns the exit code."""

    def wrap(main: Main) -> Command:
        def run(argv: Sequence[str] | None = None) -> int:
            if argv is None and prog not in MEASURING:
                spin_briefly()
            try:
                with _warnings_as_sentences(prog), _flushed():
                    return main(sys.argv[1:] if argv is None else argv)
            except KeyboardInterrupt:
                return fail(prog, "interrupted", INTERRUPTED)
            except BrokenPipeError:  # the reader closed the pipe (| head)
                discard_output()
                return NO_READER
            except ModuleNotFoundError as error:
                extra = extra_of(error.name or "")
                if extra is None or os.environ.get("TSM_DEBUG"):
                    raise
                return fail(prog, f"{error.name} is missing: needs {how_to_install(extra)}")
            except (MemoryError, RuntimeError) as error:
                if os.environ.get("TSM_DEBUG") or not out_of_memory(error):
                    raise
                return fail(prog, f"not enough memory: {sentence(error)[:200]}", 1)
            except (ValueError, OSError, ArithmeticError) as error:
                if os.environ.get("TSM_DEBUG"):
                    raise
                return fail(prog, sentence(error), 1 if isinstance(error, ArithmeticError) else 2)

        run.__doc__ = main.__doc__
        return run

    return wrap


@contextmanager
def _flushed() -> Iterator[None]:
    """Flushes stdout, so that a closed pipe is detected here and not when Python exits."""
    try:
        yield
    except SystemExit:  # --help
        sys.stdout.flush()
        raise
    sys.stdout.flush()


def discard_output() -> None:
    """Discards pending output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _warnings_as_sentences(prog: str) -> Iterator[None]:
    """Prints warnings of tsm without the source line."""
    before = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__module__.startswith(__name__.partition(".")[0]):
            print(f"{prog}: warning: {message}", file=sys.stderr)
        else:
            before(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def out_of_memory(error: BaseException) -> bool:
    """Whether numpy, Python or torch (on a CPU or a GPU) could not allocate memory."""
    return (
        isinstance(error, MemoryError)
        or "t allocate memory" in str(error)
        or ("out of memory" in str(error))
    )


def fail(prog: str, message: str, code: int = 2) -> int:
    print(f"{prog}: error: {message}", file=sys.stderr)
    return code


def sentence(error: BaseException) -> str:
    """The error on one line; an OSError names its file."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__
