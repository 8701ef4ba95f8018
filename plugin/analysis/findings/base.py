"""An analysis has a name, requirements on the model, and a function from a subject to a finding.

    @register_analysis("learned-p", "Exponents of the units", "Chien et al. 2021", needs=(EXPONENT,))
    def learned_p(subject: Subject, settings: NoSettings) -> LearnedP: ...

A finding consists of numbers. Its table, text and figure are made from those numbers alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...common.lazy import np
from ...registry import Registry

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..probes.subject import Subject

Row = dict[str, Any]


class DoesNotApply(ValueError):
    """The analysis does not apply to this model; the message says why."""


@dataclass(frozen=True)
class Need:
    """words: text for the list of analyses. lacks(subject): None, or the reason why the subject does not
    qualify.

    The reason completes "NAME does not apply to CELL because ...". Requirements on the model are checked before
    any data is opened.
    """

    words: str
    lacks: Callable[[Subject], str | None]


class Finding:
    """The result of one analysis of one model. Subclass as a frozen dataclass."""

    label: str  # the name of the model in a shared figure

    def numbers(self) -> dict[str, Any]:
        """All results as values that JSON can represent."""
        return {
            field.name: plain(getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
        }

    def table(self) -> list[Row]:
        """The results as rows of a CSV file, all with the same columns."""
        raise NotImplementedError

    def text(self) -> str:
        """One or two sentences that say what the figure shows."""
        raise NotImplementedError

    def draw(self, *others: Any) -> Figure:
        """The figure; if `Analysis.several`, it also shows the findings of `others`."""
        raise NotImplementedError

    def files(self) -> dict[str, bytes]:
        """Additional files to write, name -> contents."""
        return {}


@dataclass(frozen=True)
class NoSettings:
    """settings of the analysis"""


@dataclass(frozen=True)
class About:
    """The description of an analysis in a list.

    several: a figure may show more than one model. bare: the analysis needs no model.
    """

    name: str
    title: str
    source: str
    needs: tuple[Need, ...]
    several: bool
    bare: bool


@dataclass(frozen=True)
class Analysis(About):
    """An entry of the registry. settings: the dataclass of the analysis's own flags."""

    settings: type
    function: Callable[..., Finding]

    def lacks(self, subject: Subject) -> str | None:
        """The first reason why the analysis does not apply, or None."""
        return next((why for need in self.needs if (why := need.lacks(subject)) is not None), None)

    def run(self, subject: Subject, settings: Any = None) -> Finding:
        """Runs the analysis; raises DoesNotApply if the subject lacks something it needs."""
        why = self.lacks(subject)
        if why is not None:
            raise DoesNotApply(f"{self.name} does not apply to {subject.kind} because {why}")
        return self.function(subject, self.settings() if settings is None else settings)


ANALYSES: Registry[Analysis] = Registry("analysis")


def register_analysis(
    name: str,
    title: str,
    source: str,
    needs: Sequence[Need] = (),
    settings: type = NoSettings,
    several: bool = False,
    bare: bool = False,
) -> Callable[[Callable[..., Finding]], Callable[..., Finding]]:
    """Decorator that registers a function (subject, settings) -> Finding as an analysis."""

    def enter(function: Callable[..., Finding]) -> Callable[..., Finding]:
        entry = Analysis(name, title, source, tuple(needs), several, bare, settings, function)
        ANALYSES.register(name)(entry)
        return function

    return enter


def plain(value: Any) -> Any:
    """Values that JSON can represent: arrays as lists, non-finite numbers as None."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
