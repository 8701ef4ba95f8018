"""One self-contained HTML file with all analyses that apply to a model.

Figures are inline SVG, with collapsed tables below them.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .... import __version__
from ...common import style
from ...models import count_parameters
from ..probes.subject import Subject
from .base import Analysis, DoesNotApply, plain
from .results import Result, run

ROWS = 200  # rows shown of each table; the CSV file has them all
Watch = Callable[[str], None]


@dataclass(frozen=True)
class Refusal:
    """An analysis that does not apply, and why."""

    analysis: Analysis
    reason: str


def analyse_all(
    subject: Subject, analyses: Iterable[Analysis], watch: Watch = lambda name: None
) -> tuple[list[Result], list[Refusal]]:
    """Runs every analysis on one subject; returns the results and the analyses that do not apply."""
    results, refusals = [], []
    for analysis in analyses:
        watch(analysis.name)
        try:
            results.append(run(analysis, [subject]))
        except DoesNotApply as error:
            refusals.append(Refusal(analysis, str(error)))
    return results, refusals


def build_page(subject: Subject, results: Sequence[Result], refusals: Sequence[Refusal]) -> str:
    """The HTML of the whole report."""
    title = f"{subject.label}: what its units do"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{CSS}</style></head><body>",
        f"<h1>{html.escape(title)}</h1>",
        _about(subject),
        _contents(results),
        *(_section(result) for result in results),
        _refused(refusals),
        f"<footer>Made by tsm {__version__}, tsm-analyze live.</footer>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _about(subject: Subject) -> str:
    trained = subject.trained
    layers = ", ".join(f"{layer.hidden_size}" for layer in subject.layers)
    rows = {
        "checkpoint": trained.path,
        "architecture": trained.config["model"]["arch"],
        "cell": subject.cell.name,
        "units of each layer": layers,
        "parameters": f"{count_parameters(subject.model):,}",
        "data": f"{subject.task.summary()}; {subject.split} split",
        "sample": f"{int(subject.valid.sum()):,} steps in float64; {subject.rows} sequences for "
        "ablations",
    }
    cells = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f'<table class="about">{cells}</table>'


def _contents(results: Sequence[Result]) -> str:
    items = "".join(
        f'<li><a href="#{html.escape(r.analysis.name)}">{html.escape(r.analysis.title)}</a></li>'
        for r in results
    )
    return f"<nav><ol>{items}</ol></nav>"


def _section(result: Result) -> str:
    analysis = result.analysis
    picture = base64.b64encode(style.rendered(result.draw(), "svg")).decode()
    name, title = html.escape(analysis.name), html.escape(analysis.title)
    return (
        f'<section id="{name}"><h2>{title}</h2>'
        f'<figure><img alt="{title}" src="data:image/svg+xml;base64,{picture}">'
        f"<figcaption>{html.escape(result.text())}</figcaption></figure>"
        f'<p class="source"><code>tsm-analyze {name}</code>, after {html.escape(analysis.source)}</p>'
        f"{_table(result.table())}</section>"
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_shown(v))}</td>" for v in plain(row).values())
        + "</tr>"
        for row in rows[:ROWS]
    )
    count = f"{len(rows):,} rows" + (f", the first {ROWS}" if len(rows) > ROWS else "")
    return (
        f"<details><summary>Numbers ({count})</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>"
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _refused(refusals: Sequence[Refusal]) -> str:
    if not refusals:
        return ""
    items = "".join(
        f"<li><b>{html.escape(r.analysis.title)}</b>: {html.escape(r.reason)}.</li>"
        for r in refusals
    )
    return f'<section id="refused"><h2>What does not apply</h2><ul>{items}</ul></section>'


CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
figure { margin: 0; } img { max-width: 100%; height: auto; }
figcaption { max-width: 48rem; } .source, footer { color: #666; font-size: .85rem; }
table { border-collapse: collapse; font-size: .85rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; }
details { max-height: 26rem; overflow: auto; } summary { cursor: pointer; color: #0072B2; }
nav ol { columns: 2; font-size: .9rem; } @media (max-width: 40rem) { nav ol { columns: 1; } }
"""
