"""docs/results.md and docs/beyond.md: generated from the recipes and the committed summaries alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..common.atomic import write_bytes
from .claims import SEEDS, claims_table
from .figures import drawable, figure_name
from .recipe import Experiment
from .rows import counts_of
from .store import Store
from .tables import differences, markdown

HEAD = """# Results

Made by `tsm-reproduce page` from the recipes in `plugin/reproduce` and the summaries in `results/`: do not
edit. How to run and continue the experiments: [reproduce.md](reproduce.md).

PL = Chien et al. 2021 (power-law LSTM), FG = Ohno et al. 2022 (fast gates), MTS = Mahto et al. 2021
(multi-timescale LSTM). Measured values are means over seeds ± their standard error; (a to b) is a 95%
bootstrap interval, the mean of those of the seeds. "epochs" counts those that were run, of those in the
recipe; a row that had less than the recipe says so in its remarks. Test values are those of the checkpoint
with the best validation. Where seeds lie far apart (a standard error above 5% of the mean) they are printed one
by one instead of a mean. What stands after ± in a published number is the paper's own deviation or error.
"commit" is that of the code that made the run: none for runs from before it was recorded.
"""

AFTER_CLAIMS = f"""
Verdicts come from the summaries by rules that stand in the recipes. One model is ahead of another where the
95% interval of the mean difference (Student's t) over the seeds that both have does not hold 0; else that
evidence is undecided. What an analysis finds counts where the model of every seed has it. With fewer than
{SEEDS} seeds, unless the rule asks for fewer, a claim stays open. *In part*: some of what is
listed as evidence holds.
"""


BEYOND = """# Beyond the papers

Made by `tsm-reproduce page`, as [results.md](results.md) is: do not edit. Questions that the papers do not ask,
with models of equal size and three seeds or more. Each hypothesis stands in its recipe
(`plugin/reproduce/recipes/beyond.py`) since before its first run. Negative answers stay.
"""


def page(store: Store, experiments: Sequence[Experiment]) -> str:
    """What the papers claim, and their experiments."""
    experiments = [experiment for experiment in experiments if experiment.page == "results"]
    parts = [
        HEAD,
        "\n".join(claims_table(store)),
        AFTER_CLAIMS,
        "\n".join(overview(store, experiments)),
    ]
    return _joined(parts, experiments, store)


def beyond(store: Store, experiments: Sequence[Experiment]) -> str:
    """What nobody asked."""
    experiments = [experiment for experiment in experiments if experiment.page == "beyond"]
    return _joined([BEYOND, "\n".join(overview(store, experiments))], experiments, store)


def _joined(parts: list[str], experiments: Sequence[Experiment], store: Store) -> str:
    parts += ["\n".join(section(experiment, store)) for experiment in experiments]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def overview(store: Store, experiments: Sequence[Experiment]) -> list[str]:
    heads = ("experiment", "source", "runs complete", "runs begun", "runs in the recipe")
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for experiment in experiments:
        c = counts_of(experiment, store)
        link = f"[{experiment.name}](#{experiment.name})"
        lines.append(f"| {link} | {experiment.source} | {c.complete} | {c.begun} | {c.asked} |")
    return lines


def section(experiment: Experiment, store: Store) -> list[str]:
    lines = [
        f"## {experiment.name}",
        "",
        f"**{experiment.title}** ({experiment.source}). {experiment.recipe}",
    ]
    if experiment.hypothesis:
        lines += ["", f"*Hypothesis, before the first run.* {experiment.hypothesis}"]
    lines += ["", *markdown(experiment, store)]
    found = differences(experiment, store)
    if found:
        lines += ["", *(f"- {text}" for text in found)]
    if drawable(experiment, store):
        lines += ["", f"![{experiment.title}](img/{figure_name(experiment)})"]
    for note in experiment.notes:
        lines += ["", note]
    return lines


def write_pages(store: Store, docs: Path, experiments: Sequence[Experiment]) -> list[Path]:
    """Write both pages, without their figures."""
    docs.mkdir(parents=True, exist_ok=True)
    texts = {"results.md": page(store, experiments), "beyond.md": beyond(store, experiments)}
    for name, text in texts.items():
        write_bytes(docs / name, text.encode())
    return [docs / name for name in texts]
