"""tsm-analyze: the files and the page that it writes, and exit code 2 with one sentence for bad input."""

from __future__ import annotations

import base64
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from documented import ROOT, blocks
from tsm.plugin.analysis.catalogue import all_analyses
from tsm.plugin.analysis.findings.base import ANALYSES
from tsm.plugin.cli import analyze

ARCH = "plstm_tagger"


@pytest.fixture
def call(capsys):
    """Runs `tsm-analyze ...`; returns exit code, stdout, stderr."""

    def run(*words) -> tuple[int, str, str]:
        capsys.readouterr()
        code = analyze.main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(scope="module")
def checkpoint(subject_of):
    return subject_of(ARCH).trained.path


def small(path, *more):
    return [path, "--cpu", "--steps", 60, "--rows", 8, *more]


def refused(result, *parts) -> None:
    code, _, err = result
    assert code == 2, err
    assert err.count("\n") == 1 and err.startswith("tsm-analyze: error: "), err
    for part in parts:
        assert part in err, err


def test_list_names_every_analysis(call):
    code, out, _ = call("list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[::2]] == [a.name for a in all_analyses()]


def test_the_page_of_the_docs_lists_every_analysis():
    """docs/analysis.md has one row per analysis, with the registry's order and titles."""
    page = (Path(__file__).parents[2] / "docs/analysis.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    found = [(row[0].strip("| `"), row[2], row[3].strip(" |")) for row in rows]
    assert found == [
        (
            a.name,
            ", ".join(n.words for n in a.needs) or ("nothing" if a.bare else "any model"),
            a.source,
        )
        for a in all_analyses()
    ]


def test_one_analysis_writes_four_files(call, checkpoint, tmp_path):
    code, out, _ = call("timescales", *small(checkpoint, "--output", tmp_path / "new"))
    assert code == 0
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == [f"timescales.{kind}" for kind in ("csv", "json", "png", "svg")]
    found = json.loads((tmp_path / "new/timescales.json").read_text())
    assert found["models"][0]["cell"] == "plstm" and found["models"][0]["task"] == "copy"
    assert found["models"][0]["text"] == out.splitlines()[0]
    rows = (tmp_path / "new/timescales.csv").read_text().splitlines()
    assert len(rows) == 1 + 12


def test_analyses_that_need_no_model(call, tmp_path):
    code, out, _ = call("toy", "--toy-updates", 300, "--output", tmp_path)
    assert code == 0 and "tau = 300" in out


def test_settings_are_flags(call, checkpoint, tmp_path):
    words = small(checkpoint, "--output", tmp_path, "--at-a-time", 3, "--orders", 1)
    assert call("unit-ablation", *words)[0] == 0
    found = json.loads((tmp_path / "unit-ablation.json").read_text())
    assert found["settings"]["at_a_time"] == 3
    assert found["models"][0]["numbers"]["silenced"] == [0, 3, 6, 9]


def test_two_models(call, make_trained, tmp_path):
    paths = [make_trained(arch, "dyck2").path for arch in ("lstm_tagger", "fast_lstm_tagger")]
    code, _, err = call("dyck2-timescales", *paths, "--cpu", "--output", tmp_path)
    assert code == 0, err
    labels = [
        m["label"] for m in json.loads((tmp_path / "dyck2-timescales.json").read_text())["models"]
    ]
    assert labels == ["lstm_tagger", "fast_lstm_tagger"]
    other = make_trained("lstm_lm").path
    refused(
        call("unit-ablation", paths[0], other, "--cpu", "--output", tmp_path),
        "the models were trained on dyck2 and language_modeling; accepted: one task",
    )


def test_live_is_one_page_with_all_that_applies(call, checkpoint, subject_of, tmp_path):
    page = tmp_path / "report.html"
    code, out, _ = call("live", *small(checkpoint, "--output", page))
    assert code == 0
    text = page.read_text()
    assert not re.search(r'(?:src|href)="(?!data:|#)', text), "the page needs another file"
    subject = subject_of(ARCH)
    fits = [a.name for a in all_analyses() if not a.lacks(subject)]
    rest = [a for a in all_analyses() if a.lacks(subject)]
    assert re.findall(r'<section id="([\w-]+)">', text) == [*fits, "refused"]
    pictures = re.findall(r"data:image/svg\+xml;base64,([\w+/=]+)", text)
    assert len(pictures) == len(fits)
    assert all(b"<svg" in base64.b64decode(picture) for picture in pictures)
    for analysis in rest:
        assert f"{analysis.name} does not apply to plstm because" in text
        assert f"{analysis.name} does not apply to plstm because" in out
    assert "2 checkpoints, updates 2 to 5" in text  # the run that the checkpoint belongs to


def test_live_of_a_run(call, checkpoint, tmp_path):
    code, out, _ = call(
        "live",
        "--run",
        checkpoint.parent,
        "--cpu",
        "--output",
        tmp_path / "a.html",
        "--skip",
        "unit-ablation,toy",
    )
    assert code == 0, out
    sections = re.findall(r'<section id="([\w-]+)">', (tmp_path / "a.html").read_text())
    assert "timescales" in sections and not {"unit-ablation", "toy"} & set(sections)


def test_what_does_not_apply_exits_with_2(call, checkpoint, make_trained, tmp_path):
    words = ("--cpu", "--output", tmp_path)
    refused(
        call("bias-timescales", checkpoint, *words),
        "bias-timescales does not apply to plstm because its forget factor depends on the state age",
    )
    nru = make_trained("nru_lm").path
    refused(
        call("gate-map", nru, *words),
        "gate-map does not apply to nru because it is not element-wise",
    )
    refused(
        call("reference-times", make_trained("plstm_lm").path, *words),
        "reference-times does not apply to plstm because it was trained on language_modeling",
    )
    assert not list(tmp_path.iterdir())


def test_bad_input(call, checkpoint, tmp_path):
    refused(call("timescale", checkpoint), "unknown analysis 'timescale'; did you mean timescales")
    refused(call("timescales"), "no checkpoint was given")
    refused(call("timescales", tmp_path / "no.pt"), "does not exist")
    refused(call("timescales", checkpoint, checkpoint), "takes one checkpoint; 2 were given")
    refused(
        call("timescales-over-training", checkpoint, checkpoint),
        "the same checkpoint was given twice",
    )
    refused(
        call("timescales", checkpoint, "--stepz", 3), "unknown flag '--stepz'; did you mean --steps"
    )
    refused(
        call("timescales", checkpoint, "--split", "nope"), "split is 'nope'; accepted: valid, test"
    )
    refused(
        call("unit-ablation", *small(checkpoint), "--orders", 0),
        "--orders is 0; accepted: 1 or more",
    )
    refused(
        call("timescale-fit", *small(checkpoint), "--fit-layer", 2),
        "--fit-layer = 2; accepted: 0 (chosen for you), or 1 to 1",
    )
    refused(call("live"), "no checkpoint was given")
    refused(
        call("live", checkpoint, "--skip", "decai"), "unknown analysis 'decai'; did you mean decay"
    )
    refused(call("live", checkpoint, "--output", tmp_path), "is not a file in an existing folder")
    refused(
        call("timescales-over-training", "--run", tmp_path),
        "has no checkpoint_best.pt and no checkpoint_last.pt",
    )
    refused(call("markov"), "no text was given")


@pytest.mark.parametrize("package", ["matplotlib", "scipy"])
def test_a_missing_package_is_named(call, checkpoint, tmp_path, monkeypatch, package):
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    for what in ("timescale-fit", "live"):
        output = tmp_path / ("page.html" if what == "live" else "files")
        refused(
            call(what, *small(checkpoint), "--output", output),
            f"{package}",
            "pip install 'timescale-models[train]'",
        )
        assert not output.exists()


def test_a_text_without_a_model(call, tmp_path):
    from tsm.plugin.cli.preprocess import main as preprocess

    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\nthe dog sat on the cat\n" * 40)
    flags = [f for split in ("train", "valid", "test") for f in (f"--{split}pref", str(text))]
    assert preprocess([*flags, "--destdir", str(tmp_path / "data")]) == 0
    out = tmp_path / "out"
    code, _, err = call("markov", "--data", tmp_path / "data", "--write-text", "--output", out)
    assert code == 0, err
    words = (out / "markov.train.txt").read_text().split()
    pairs = set(pairwise(words))
    assert set(words) == {"the", "cat", "sat", "on", "mat", "dog"}
    assert ("the", "cat") in pairs and ("cat", "the") in pairs  # over the line's end
    assert ("on", "cat") not in pairs


def test_the_sentence_of_the_map(call, make_trained, tmp_path):
    path = make_trained("lstm_lm").path
    words = ("--cpu", "--steps", 60, "--output", tmp_path)
    assert call("gate-map", path, *words, "--sentence", "the old sailor")[0] == 0
    found = json.loads((tmp_path / "gate-map.json").read_text())["models"][0]["numbers"]
    assert found["symbols"][:3] == ["the", "old", "sailor"]
    tagger = make_trained("lstm_tagger").path
    refused(
        call("gate-map", tagger, *words, "--sentence", "x"), "because its task, copy, has no text"
    )


def test_user_dir_may_add_an_analysis(call, checkpoint, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    words = small(checkpoint, "--user-dir", tmp_path, "--output", tmp_path / "out")
    code, out, err = call("count-units", *words)
    assert code == 0, err
    assert out.startswith("12 units.")
    del ANALYSES._entries["count-units"]


def test_the_example_of_the_docs(call, checkpoint, tmp_path):
    *_, example = blocks(ROOT / "docs/analysis.md")
    (tmp_path / "mine.py").write_text(example.code)
    words = small(checkpoint, "--user-dir", tmp_path, "--output", tmp_path / "out")
    code, out, err = call("openness", *words)
    del ANALYSES._entries["openness"]
    assert code == 0, err
    assert "% of all gates are above 0.9." in out
    assert (tmp_path / "out/openness.png").exists()


PLUGIN = """
from dataclasses import dataclass
from tsm.plugin.analysis import Finding, register_analysis
from tsm.plugin.common import style

@dataclass(frozen=True)
class Units(Finding):
    label: str
    units: int

    def table(self):
        return [{"units": self.units}]

    def text(self):
        return f"{self.units} units."

    def draw(self, *others):
        made, (axis,) = style.figure(1, (1, 1))
        axis.set_xlabel("units")
        return made

@register_analysis("count-units", "Units", "nowhere")
def count_units(subject, settings):
    return Units(subject.label, subject.layers[0].hidden_size)
"""


def test_the_list_has_analyses_of_a_user(call, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN.replace("count-units", "count-more"))
    code, out, err = call("list", "--user-dir", tmp_path)
    del ANALYSES._entries["count-more"]
    assert code == 0 and "count-more" in out, err


def test_the_same_command_gives_the_same_bytes(call, checkpoint, tmp_path):
    """The state of torch's global random generator does not matter."""
    texts = []
    for name in ("a", "b"):
        torch.manual_seed(len(texts))
        assert call("unit-ablation", *small(checkpoint, "--output", tmp_path / name))[0] == 0
        texts.append((tmp_path / name / "unit-ablation.json").read_bytes())
    assert texts[0] == texts[1]
