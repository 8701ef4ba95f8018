"""The papers' claims and our predictions, each with a verdict and a sentence computed from the summaries.

    register_claim("The power law is ahead of the LSTM on ...", "PL 4.4", Ahead("imdb", "plstm", "lstm"))

A claim has one rule or more. It is *reproduced* if all of them hold, *in part* if some hold and some do not,
*not reproduced* if one fails and none holds. If no rule finds a difference, that is the verdict. It is *not
run* if there is no run for any of them, and otherwise *open*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from .judged import FAILS, HOLDS, OPEN, SAME, Judged, Rule, count
from .rows import span
from .store import Store

PAPERS = ("PL", "FG", "MTS")  # the order of the table
REPRODUCED, IN_PART, NOT_REPRODUCED = "reproduced", "in part", "not reproduced"
NO_DIFFERENCE, NOT_RUN = "no difference found", "not run"
VERDICTS = (REPRODUCED, IN_PART, NO_DIFFERENCE, NOT_REPRODUCED, OPEN, NOT_RUN)
AFTERWARDS = "†"  # marks the verdict of a rule that was written when its result was known


class Verdict(NamedTuple):
    """extent: how many seeds and epochs it is based on. limit: how large a difference may be that was not
    found."""

    name: str
    why: str
    extent: str
    limit: str = ""

    @property
    def text(self) -> str:
        return f"{self.name} ({self.limit})" if self.limit else self.name


def extent(judged: Sequence[Judged]) -> str:
    """The fewest seeds of a rule; the epochs of runs that are shorter than their recipe."""
    seeds = min((len({run.seed for run in one.runs}) for one in judged if one.runs), default=0)
    used = [run for one in judged for run in one.runs]
    short = [
        run for run in used if run.epochs < run.of_epochs and not run.ended and not run.diverged
    ]
    if not short:
        return count(seeds)
    done, full = [run.epochs for run in short], [float(run.of_epochs) for run in short]
    return f"{count(seeds)}, {span(done, ',.0f')} of {span(full, ',.0f')} epochs"


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, in our words, and the rules that must hold.

    afterwards  the rules, or their change, were written when the results were known
    earlier     the outcome before a change, with its date and figures; it does not count
    note        why they were changed, or what else to know about the rules
    """

    text: str
    source: str
    rules: tuple[Rule, ...]
    afterwards: bool = False
    earlier: str = ""
    note: str = ""

    def verdict(self, store: Store) -> Verdict:
        judged = [rule(store) for rule in self.rules]
        name = _verdict(judged)
        why = in_words(judged) or "no rule tests it yet"
        if self.earlier:
            why += f". Before a change of the rule, on {self.earlier}"
        if self.note:
            why += f". {self.note}"
        limits = dict.fromkeys(one.limit for one in judged if one.limit)
        limit = ", ".join(limits) if name == NO_DIFFERENCE else ""
        return Verdict(name, why, extent(judged), limit)

    @property
    def mark(self) -> str:
        return AFTERWARDS * self.afterwards


def _verdict(judged: Sequence[Judged]) -> str:
    states = {one.state for one in judged}
    if states == {HOLDS}:
        return REPRODUCED
    if states == {SAME}:
        return NO_DIFFERENCE
    if FAILS in states or states == {HOLDS, SAME}:
        return IN_PART if HOLDS in states else NOT_REPRODUCED
    return OPEN if any(one.runs or one.begun for one in judged) else NOT_RUN


def in_words(judged: Sequence[Judged]) -> str:
    """All phrases; neighbours with the same remarks share them."""
    parts = []
    for remarks, group in groupby(judged, key=lambda one: one.remarks):
        phrases = "; ".join(one.phrase for one in group)
        parts.append(f"{phrases} ({remarks})" if remarks else phrases)
    return "; ".join(parts)


CLAIMS: list[Claim] = []
PREDICTIONS: dict[str, list[Claim]] = {}  # by experiment


def register_claim(
    text: str,
    source: str,
    *rules: Rule,
    afterwards: bool = False,
    earlier: str = "",
    note: str = "",
) -> None:
    CLAIMS.append(Claim(text, source, rules, afterwards or bool(earlier), earlier, note))


register_afterwards = partial(register_claim, afterwards=True)


def register_prediction(home: str, text: str, *rules: Rule, earlier: str = "") -> None:
    """What we expect of runs of an experiment, registered before the first of them."""
    PREDICTIONS.setdefault(home, []).append(Claim(text, home, rules, bool(earlier), earlier))


def predictions(home: str, store: Store) -> list[str]:
    """An experiment's predictions with their outcomes, for the page."""
    outcomes = {REPRODUCED: "right", NOT_REPRODUCED: "wrong"}
    lines = []
    for claim in PREDICTIONS.get(home, []):
        verdict = claim.verdict(store)
        outcome = outcomes.get(verdict.name, verdict.text)
        lines.append(
            f"*Prediction, before these runs.* {claim.text} *Outcome: {outcome}* ({verdict.why})."
        )
    return lines


def claims_judged(store: Store) -> list[tuple[Claim, Verdict]]:
    """By paper and section."""
    return [(claim, claim.verdict(store)) for claim in sorted(CLAIMS, key=_place)]


def claims_table(store: Store) -> list[str]:
    """The table of claims at the top of the page, with links to the sections of their experiments."""
    lines = ["| claim | paper | verdict | evidence |", "|---|---|---|---|"]
    for claim, verdict in claims_judged(store):
        homes = {rule.home: None for rule in claim.rules}
        links = ", ".join(f"[{home}](#{home})" for home in homes)
        shown = f"{verdict.text}{claim.mark}"
        lines.append(f"| {claim.text} | {claim.source} | {shown} | {links}: {verdict.why} |")
    return lines


def _place(claim: Claim) -> tuple[int, str, str]:
    """Sort key by paper and section, independent of the import order of recipes."""
    return PAPERS.index(claim.source.split()[0]), claim.source, claim.text
