"""The papers' claims, each with a verdict and a sentence computed from the summaries.

    register_claim("The power law is ahead of the LSTM on ...", "PL 4.4", Ahead("imdb", "plstm", "lstm"))

A claim has one rule or more. It is *reproduced* if all of them hold, *in part* if some hold and some fail, *not
reproduced* if one fails and none holds, *not run* if there is no run for any of them, and otherwise *open*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from .rows import span
from .rules import FAILS, HOLDS, OPEN, Judged, Rule, count
from .store import Store

PAPERS = ("PL", "FG", "MTS")  # the order of the table
REPRODUCED, IN_PART, NOT_REPRODUCED = "reproduced", "in part", "not reproduced"
NOT_RUN = "not run"
VERDICTS = (REPRODUCED, IN_PART, NOT_REPRODUCED, OPEN, NOT_RUN)


class Verdict(NamedTuple):
    """extent: how many seeds and epochs it is based on."""

    name: str
    why: str
    extent: str


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
    """A claim of a paper, in our words, and the rules that must hold."""

    text: str
    source: str
    rules: tuple[Rule, ...]

    def verdict(self, store: Store) -> Verdict:
        judged = [rule(store) for rule in self.rules]
        why = in_words(judged) or "no rule tests it yet"
        states = {one.state for one in judged}
        verdict = OPEN if any(one.runs or one.begun for one in judged) else NOT_RUN
        if states == {HOLDS}:
            verdict = REPRODUCED
        elif FAILS in states:
            verdict = IN_PART if HOLDS in states else NOT_REPRODUCED
        return Verdict(verdict, why, extent(judged))


def in_words(judged: Sequence[Judged]) -> str:
    """All phrases; neighbours with the same remarks share them."""
    parts = []
    for remarks, group in groupby(judged, key=lambda one: one.remarks):
        phrases = "; ".join(one.phrase for one in group)
        parts.append(f"{phrases} ({remarks})" if remarks else phrases)
    return "; ".join(parts)


CLAIMS: list[Claim] = []


def register_claim(text: str, source: str, *rules: Rule) -> None:
    CLAIMS.append(Claim(text, source, rules))


PREDICTIONS: dict[str, list[Claim]] = {}  # by experiment


def register_prediction(home: str, text: str, *rules: Rule) -> None:
    """What we expect of runs of an experiment, registered before the first of them."""
    PREDICTIONS.setdefault(home, []).append(Claim(text, home, rules))


def predictions(home: str, store: Store) -> list[str]:
    """An experiment's predictions with their outcomes, for the page."""
    outcomes = {REPRODUCED: "right", NOT_REPRODUCED: "wrong"}
    lines = []
    for claim in PREDICTIONS.get(home, []):
        verdict = claim.verdict(store)
        outcome = outcomes.get(verdict.name, verdict.name)
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
        lines.append(f"| {claim.text} | {claim.source} | {verdict.name} | {links}: {verdict.why} |")
    return lines


def _place(claim: Claim) -> tuple[int, str, str]:
    """Sort key by paper and section, independent of the import order of recipes."""
    return PAPERS.index(claim.source.split()[0]), claim.source, claim.text
