"""tsm-eval of language models: its numbers compared with independent computations."""

from __future__ import annotations

import json
import lzma
import math
import re
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train
from tsm.plugin.data import DataDir, Vocab
from tsm.plugin.data.vocab import unescape
from tsm.plugin.evaluation.eval_text import task_config
from tsm.plugin.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from tsm.plugin.train.checkpoint import read_checkpoint

LINE = re.compile(r"^Loss \(base 2\): (\d+\.\d+), Perplexity: (\d+\.\d+)$", re.MULTILINE)


def results(run_eval, tmp_path, *args):
    code, out, err = run_eval(*args, "--json", tmp_path / "r.json")
    assert (code, err) == (0, "")
    return json.loads((tmp_path / "r.json").read_text()), out


def test_loss_is_that_of_the_text(run_eval, tmp_path, word, exact):
    found, out = results(run_eval, tmp_path, "--path", word.path)
    vocab = Vocab.load(word.data / "dict.txt")
    symbols = word.text.replace("\n", " <eos> ").split()
    bits = exact(word.path, [vocab.symbols.index(s) for s in symbols])
    assert found["tokens"] == len(symbols) - 1
    assert found["loss"] == pytest.approx(float(bits.mean()), abs=1e-5)
    assert found["perplexity"] == pytest.approx(2 ** float(bits.mean()), rel=1e-5)
    printed = LINE.search(out)
    assert printed and float(printed[1]) == pytest.approx(found["loss"], abs=5e-5)
    assert "Bits per character" not in out


@pytest.mark.parametrize("steps", [1, 7, 10_000])
def test_chunks_do_not_matter(run_eval, tmp_path, word, steps):
    usual, _ = results(run_eval, tmp_path, "--path", word.path)
    found, _ = results(run_eval, tmp_path, "--path", word.path, "--tokens-per-sample", steps)
    assert found["loss"] == pytest.approx(usual["loss"], abs=1e-6)


def test_streams_are_scored_each_for_itself(run_eval, tmp_path, word, exact):
    found, out = results(run_eval, tmp_path, "--path", word.path, "--max-sentences", 3)
    tokens = DataDir(word.data).corpus("test")
    n = len(tokens) // 3
    parts = [exact(word.path, tokens.read(i * n, i * n + n).tolist()) for i in range(3)]
    assert found["loss"] == pytest.approx(float(np.mean(np.stack(parts))), abs=1e-5)
    assert f"{3 * (n - 1):,} words in 3 streams" in out


def test_validation_gives_the_number_of_the_training_log(run_eval, tmp_path, word):
    found, _ = results(run_eval, tmp_path, word.data, "--path", word.path, "--gen-subset", "valid")
    best = read_checkpoint(word.path)["train_state"]["best"]
    assert found["loss"] == pytest.approx(best, abs=1e-6)


def test_reset_state_scores_segments_as_in_training(run_eval, tmp_path, word, exact):
    save = tmp_path / "run"
    flags = ["--arch", "lstm_lm", "--reset-state", "--max-update", "2", "--tokens-per-sample", "20"]
    flags += ["--log-format", "none", "--decoder-hidden-size", "8", "--decoder-embed-dim", "4"]
    assert train([str(word.data), *flags, "--cpu", "--save-dir", str(save)]) == 0
    path = save / "checkpoint_last.pt"
    found, _ = results(run_eval, tmp_path, "--path", path)
    tokens = DataDir(word.data).corpus("test").read(0, found["split_tokens"]).tolist()
    parts = [exact(path, tokens[i : i + 21]) for i in range(0, len(tokens) - 1, 20)]
    assert found["loss"] == pytest.approx(float(np.mean(np.concatenate(parts))), abs=1e-5)


def test_characters_and_baselines(run_eval, tmp_path, char, texts, exact):
    found, out = results(run_eval, tmp_path, "--path", char.path, "--baselines")
    vocab = Vocab.load(char.data / "dict.txt")
    bits = exact(char.path, [vocab.symbols.index(c) for c in char.text])
    assert found["bits_per_character"] == pytest.approx(float(bits.mean()), abs=1e-5)
    assert f"Bits per character: {found['loss']:.4f}" in out

    counts = Counter((texts / "train.txt").read_text())
    whole = sum(counts.values()) + len(counts)
    unigram = [-math.log2((counts[c] + 1) / whole) for c in char.text[1:]]
    assert found["baselines"]["unigram"] == pytest.approx(np.mean(unigram), rel=1e-12)
    packed = lzma.compress(char.text.encode(), preset=9 | lzma.PRESET_EXTREME)
    assert found["baselines"]["xz"] == 8 * len(packed) / len(char.text)
    assert f"unigram {np.mean(unigram):.4f}" in out


def test_pieces_are_scored_by_the_word_too(run_eval, tmp_path, pieces, exact):
    found, out = results(run_eval, tmp_path, "--path", pieces.path)
    data = DataDir(pieces.data)
    lines = pieces.text.splitlines()
    tokens = [t for line in lines for t in data.tokenizer.encode_line(line, data.vocab)]
    bits = float(exact(pieces.path, tokens).mean())
    words = sum(len(line.split()) + 1 for line in lines)
    assert found["loss"] == pytest.approx(bits, abs=1e-5)
    assert found["per_word"]["words"] == words
    assert found["per_word"]["loss"] == pytest.approx(bits * len(tokens) / words, rel=1e-5)
    assert "Per word: Loss (base 2): " in out


def test_word_probs_are_the_text_and_the_loss(run_eval, tmp_path, char):
    file = tmp_path / "probs.tsv"
    found, _ = results(run_eval, tmp_path, "--path", char.path, "--output-word-probs", file)
    rows = [line.split("\t") for line in file.read_text().splitlines()]
    assert "".join(unescape(symbol) for symbol, _ in rows) == char.text[1:]
    assert -np.mean([float(p) for _, p in rows]) == pytest.approx(found["loss"], abs=1e-6)


def test_word_probs_of_valid_are_in_order(run_eval, tmp_path, word, texts):
    file = tmp_path / "probs.tsv"
    args = ("--path", word.path, "--gen-subset", "valid", "--output-word-probs", file)
    found, _ = results(run_eval, tmp_path, *args)
    symbols = (texts / "valid.txt").read_text().replace("\n", " <eos> ").split()
    assert [line.split("\t")[0] for line in file.read_text().splitlines()] == symbols[1:]
    assert found["streams"] == 1


def test_a_folder_with_a_test_split_alone(run_eval, tmp_path, word):
    (tmp_path / "new.txt").write_text("the cat sat\nthen the dog ran\n")
    flags = ["--testpref", tmp_path / "new.txt", "--srcdict", word.data / "dict.txt"]
    assert preprocess([*map(str, flags), "--destdir", str(tmp_path / "new")]) == 0
    found, _ = results(run_eval, tmp_path, tmp_path / "new", "--path", word.path)
    assert found["tokens"] == 8


def test_frequency_bins_are_printed(run_eval, tmp_path, word):
    found, out = results(run_eval, tmp_path, "--path", word.path, "--frequency-bins")
    rows = found["frequency_bins"]
    assert [r["label"] for r in rows] == [">=10K", "[1K,10K)", "[100,1K)", "<100", "all"]
    assert sum(r["words"] for r in rows[:-1]) == rows[-1]["words"] == found["tokens"]
    assert rows[-1]["perplexity"] == pytest.approx(found["perplexity"], rel=1e-9)
    for r in rows[2:]:
        assert r["low"] < r["perplexity"] < r["high"]
        assert f"{r['low']:,.2f} to {r['high']:,.2f}" in out
    again, _ = results(run_eval, tmp_path, "--path", word.path, "--frequency-bins")
    other, _ = results(run_eval, tmp_path, "--path", word.path, "--frequency-bins", "--seed", 1)
    assert again["frequency_bins"] == rows != other["frequency_bins"]


def test_the_built_in_corpus(run_eval, tmp_path):
    flags = ["--arch", "lstm_lm", "--max-update", "2", "--generated-tokens", "2000", "--cpu"]
    flags += ["--decoder-hidden-size", "8", "--decoder-embed-dim", "4", "--log-format", "none"]
    assert train([*flags, "--batch-size", "4", "--save-dir", str(tmp_path)]) == 0
    found, out = results(run_eval, tmp_path, "--path", tmp_path / "checkpoint_best.pt")
    assert found["tokens"] == 199 and "generated test" in out


def test_the_data_seed_chooses_the_built_in_corpus_and_the_seed_does_not():
    texts = {
        (seed, data): LanguageModelingTask(
            LanguageModelingConfig(seed=seed, data_seed=data, generated_tokens=1000)
        ).splits["train"].tokens.tolist()
        for seed, data in ((1, 1), (2, 1), (1, 2))
    }  # fmt: skip
    assert texts[1, 1] == texts[2, 1] != texts[1, 2]


def test_of_a_checkpoint_from_before_data_seed_one_seed_chose_both():
    config = {"task": {"name": "language_modeling", "seed": 5}}
    trained = SimpleNamespace(path="old.pt", config=config)
    assert task_config(trained).data_seed == 5
    config["task"]["data_seed"] = 3
    assert task_config(trained).data_seed == 3
