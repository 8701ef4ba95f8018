"""docs/results.md and docs/beyond.md: generated from the recipes and the committed summaries alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..common.atomic import write_bytes
from .claims import AFTERWARDS, claims_table, predictions
from .figures import drawable, figure_name, title
from .judged import SEEDS
from .paired import ALIKE
from .recipe import Experiment
from .rows import counts_of
from .significance import RANKED
from .store import Store
from .tables import differences, markdown

HEAD = """# Results

Which claims of three papers hold: PL = Chien et al. 2021 (power-law LSTM), FG = Ohno et al. 2022 (fast
gates), MTS = Mahto et al. 2021 (multi-timescale LSTM). `tsm-reproduce page` writes this page from the
recipes in `plugin/reproduce` and the summaries in `results/`; do not edit it. [reproduce.md](reproduce.md)
explains how to run and continue the experiments.
"""

AFTER_CLAIMS = f"""
How a verdict is computed, by rules in the recipes:

- **Ahead of another**: the 95% interval of the difference over common seeds does not contain 0; otherwise
  that evidence is undecided. With fewer than {RANKED} seeds it is the interval of the mean (Student's t); from
  {RANKED} seeds on, that of the exact signed-rank test (Wilcoxon), which is then shown. Two models of which
  none is better than guessing are not compared ("neither learned").
- **No difference found**: the interval contains 0, and all of it is closer to 0 than the margin that the rule
  states, or without one than half of the published difference. "Within ±" gives its farther end, for
  undecided evidence, too: a larger difference is excluded, a smaller one is not.
- **Within limits**: for all seeds. A run decides that only at its end, or with as many epochs as the recipe
  calls enough.
- **In part**: some of the listed evidence holds, and some does not.
- **Open**: there are runs, but they do not decide it. The evidence says why: "too few seeds" (fewer than
  {SEEDS}, unless the rule says otherwise), "undecided", "unfinished", runs of different lengths, or no runs of
  one side. **Not run**: there are none.
- **{AFTERWARDS}**: the rule, or its last change, was written when the results were known; if the change gave
  another outcome, the evidence quotes the one before. A rule that is not marked was written before its result.
  Exceptions are the first rules, of 16 November 2026, when there were results for IMDB, copy, frequency
  discrimination, PTB characters and words, and the toy problem.
- **Shortened**: a run ended before the recipe's last epoch. Two such runs are compared if the shorter one
  has at least {ALIKE:.0%} of the other's epochs.
- **Updates until a level**: if a run did not reach it, both runs of its seed are compared over the updates
  that it made (if neither did, over those of the shorter one), so slow runs are not left out. The
  difference is then a bound: "below" or "above" the one shown. It is "unknown" if neither was there by then,
  and then counts as no seed. With bounds, fewer than {RANKED} seeds decide nothing, since Student's t needs
  values; ranks take a bound for its value in favour of its side, and for the worst value against it. Until 20
  November 2026 bounds entered Student's t, and an unknown difference as 0.
- **Diverged**: such a run counts up to then, with its best checkpoint.

How to read the tables below:

- Measured values are means over seeds ± their standard error; (a to b) is a 95% bootstrap interval,
  averaged over the seeds. If seeds are far apart (a standard error above 5% of the mean), their values are
  listed instead, and each seed has a line of its own in the figure.
- In a published number, the value after ± is the deviation or error given by the paper.
- Test values are those of the checkpoint with the best validation.
- "epochs" shows how many epochs of the recipe were run; if a row has fewer than the recipe, its remarks say
  so.
- "commit" is the commit of the code that made the run; older runs, made before it was recorded, have none.
"""


# What the papers show and no recipe repeats -> the analysis of tsm-analyze that does it for a trained model.
WITHOUT_RECIPE = {
    "how timescales grow during training (FG figure 5)": "timescales-over-training",
    "NRU as a word model (FG, language modeling)": "",
    "the reset times of single units over a sequence (PL figures A.1 C and A.4)": "reference-times",
    "assigned against measured timescales, unit by unit (MTS figure 4)": "timescales",
    "forget gates over a sentence (MTS figure 5)": "gate-map",
    "how long a word stays in the memory (MTS figures 6 to 8)": "word-ablation",
    "the assigned timescales for each alpha (MTS figure 9)": "alpha-sweep",
    "other timescales for each layer (MTS A.6)": "",
}

BEYOND = """# Beyond the papers

`tsm-reproduce page` writes this page, like [results.md](results.md); do not edit it. It covers questions that
the papers do not ask, studied with models of equal size and at least three seeds. Each hypothesis was written
into its recipe (the folder `plugin/reproduce/recipes`) before the first run. Negative answers are kept.
"""


def page(store: Store, experiments: Sequence[Experiment]) -> str:
    """The page of the papers' claims and experiments."""
    experiments = [experiment for experiment in experiments if experiment.page == "results"]
    parts = [
        HEAD,
        "\n".join(claims_table(store)),
        AFTER_CLAIMS,
        "\n".join(overview(store, experiments)),
        "\n".join(without_recipe()),
    ]
    return _joined(parts, experiments, store)


def beyond(store: Store, experiments: Sequence[Experiment]) -> str:
    """The page of our own questions."""
    experiments = [experiment for experiment in experiments if experiment.page == "beyond"]
    return _joined([BEYOND, "\n".join(questions(store, experiments))], experiments, store)


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


def without_recipe() -> list[str]:
    lines = [
        "Without a recipe; where one is named, an analysis of `tsm-analyze` does it for a model:",
        "",
    ]
    return lines + [
        f"- {what}" + f": `{analysis}`" * bool(analysis)
        for what, analysis in WITHOUT_RECIPE.items()
    ]


def questions(store: Store, experiments: Sequence[Experiment]) -> list[str]:
    lines = ["| experiment | question | answer so far | runs |", "|---|---|---|---|"]
    for experiment in experiments:
        c = counts_of(experiment, store)
        link = f"[{experiment.name}](#{experiment.name})"
        asked = experiment.source.removeprefix("questions ").removeprefix("question ")
        runs = f"{c.complete} of {c.asked}"
        lines.append(f"| {link} | {asked} | {experiment.answer or 'open'} | {runs} |")
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
    if texts := differences(experiment, store):
        lines += ["", *(f"- {text}" for text in texts)]
    for kind in drawable(experiment, store):
        lines += ["", f"![{title(experiment, kind)}](img/{figure_name(experiment, kind)})"]
    for text in (*experiment.notes, *predictions(experiment.name, store)):
        lines += ["", text]
    return lines


def write_pages(store: Store, docs: Path, experiments: Sequence[Experiment]) -> list[Path]:
    """Write both pages, without their figures."""
    docs.mkdir(parents=True, exist_ok=True)
    texts = {"results.md": page(store, experiments), "beyond.md": beyond(store, experiments)}
    for name, text in texts.items():
        write_bytes(docs / name, text.encode())
    return [docs / name for name in texts]
