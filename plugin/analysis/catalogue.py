"""All analyses by name. To add an analysis, add a file named after it and a line here.

What `tsm-analyze list` shows is read from the files, since importing them would load torch.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from . import needs
from .findings.base import ANALYSES, About, Analysis

__all__ = ["ORDER", "about_all", "all_analyses", "get_analysis"]

# The order in a report: first what the units do, then what the model needs them for, then theory.
ORDER = (
    "timescales",
    "bias-timescales",
    "timescales-over-training",
    "timescale-fit",
    "alpha-sweep",
    "decay",
    "gate-map",
    "word-ablation",
    "routing",
    "frequency-bins",
    "reference-times",
    "learned-p",
    "unit-ablation",
    "by-length",
    "dyck2-timescales",
    "markov",
    "decay-simulation",
    "toy",
    "activations",
)

for _name in ORDER:
    ANALYSES.promise(_name, f"{__package__}.{_name.replace('-', '_')}")


def get_analysis(name: str) -> Analysis:
    return ANALYSES.get(name)


def names() -> list[str]:
    """The built-in analyses in `ORDER`, then those of plug-ins by name."""
    return [*ORDER, *(name for name in ANALYSES if name not in ORDER)]


def all_analyses() -> list[Analysis]:
    return [ANALYSES.get(name) for name in names()]


def about_all() -> list[About]:
    """The entries of all analyses; for built-in ones they are read from the source files."""
    return [_read(name) if name in ORDER else ANALYSES.get(name) for name in names()]


def _read(name: str) -> About:
    """Reads the entry from the decorator in the file, whose arguments are constants and names from needs.py."""
    path = Path(__file__).with_name(f"{name.replace('-', '_')}.py")
    (text,) = re.findall(r"^@(register_analysis\(.*?^\))$", path.read_text("utf-8"), re.M | re.S)
    call: Any = ast.parse(text, mode="eval").body
    registered, title, source = map(ast.literal_eval, call.args)
    given = {word.arg: word.value for word in call.keywords}
    wanted = [getattr(needs, word.id) for word in given["needs"].elts] if "needs" in given else []
    several, bare = (
        flag in given and ast.literal_eval(given[flag]) for flag in ("several", "bare")
    )
    return About(registered, title, source, tuple(wanted), several, bare)
