"""Language modelling and classification from folders that tsm-preprocess wrote."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.data import CorpusWriter, Vocab
from tsm.plugin.data.build.reviews import save_array
from tsm.plugin.data.meta import Meta
from tsm.plugin.data.staged_folder import EMBEDDINGS
from tsm.plugin.tasks.classification import ClassificationConfig, ClassificationTask
from tsm.plugin.tasks.language_modeling import (
    LOGITS,
    ROWS,
    LanguageModelingConfig,
    LanguageModelingTask,
    eval_steps,
)

from .conftest import shape_of_log

BASE = "--cpu --log-format none --batch-size 4 --decoder-hidden-size 8 --max-epoch 2 --lr .01"


@pytest.fixture
def text(tmp_path):
    """A preprocessed folder of characters or words."""

    def make(tokenizer):
        lines = [f"the {a} saw a {b} .\n" for a in ("cat", "dog", "owl") for b in ("fish", "bird")]
        for split, times in (("train", 20), ("valid", 9), ("test", 4)):
            (tmp_path / split).write_text("".join(lines) * times)
        flags = [f"--{split}pref={tmp_path / split}" for split in ("train", "valid", "test")]
        folder = tmp_path / tokenizer
        assert preprocess([*flags, f"--tokenizer={tokenizer}", f"--destdir={folder}"]) == 0
        return folder

    return make


@pytest.mark.parametrize(("tokenizer", "unit"), [("char", "bpc"), ("word", "ppl")])
def test_language_model_of_a_folder(runs, text, tokenizer, unit):
    folder, log = text(tokenizer), runs.root / "log"
    flags = f"--arch plstm_lm --bptt 8 --log-format json --log-file {log} {folder}"
    assert runs("t", flags, BASE) == 0
    valid = [e for e in shape_of_log(log) if e["event"] == "valid"]
    assert unit in valid[0] and valid[1]["loss"] < valid[0]["loss"]
    if unit == "bpc":
        assert valid[0]["bpc"] == valid[0]["loss"]
    saved = runs.checkpoint("t")
    assert bytes(saved["assets"]["dict.txt"].tolist()) == (folder / "dict.txt").read_bytes()


def test_batches_start_anywhere_and_are_cut_by_rank(text):
    folder = str(text("word"))
    config = LanguageModelingConfig(
        data=folder, batch_size=4, tokens_per_sample=9, random_bptt=True
    )
    task = LanguageModelingTask(config)
    whole = list(task.train_batches(3))
    assert len(whole) == task.batches_per_epoch(3)
    assert any(batch.lr_scale != 1 for batch in whole)
    for start in (0, 2, len(whole) - 1, len(whole)):
        rest = list(LanguageModelingTask(config).train_batches(3, start))
        assert len(rest) == len(whole) - start
        for a, b in zip(rest, whole[start:], strict=True):
            assert torch.equal(a.x, b.x) and torch.equal(a.target, b.target)
            assert a.lr_scale == b.lr_scale
    ranks = [list(LanguageModelingTask(config, rank, 2).train_batches(3)) for rank in (0, 1)]
    for one, first, second in zip(whole, *ranks, strict=True):
        assert torch.equal(one.x, torch.cat([first.x, second.x]))


def test_an_evaluation_takes_long_pieces_where_the_state_is_carried(text):
    given = dict(data=str(text("word")), batch_size=8, tokens_per_sample=5, valid_batch_size=2)
    carried = LanguageModelingTask(LanguageModelingConfig(**given))
    reset = LanguageModelingTask(LanguageModelingConfig(**given, reset_state=True))
    assert next(carried.eval_batches("valid")).x.shape[1] > 8 * 5
    assert {b.x.shape[1] for b in list(reset.eval_batches("valid"))[:-1]} == {5}
    x = [torch.cat([b.x for b in t.eval_batches("valid")], 1) for t in (carried, reset)]
    assert torch.equal(*x)


@pytest.mark.parametrize("update", [(20, 70), (80, 70), (1, 2000)])
def test_a_piece_of_an_evaluation_is_limited_or_as_long_as_in_training(update):
    config = LanguageModelingConfig(batch_size=update[0], tokens_per_sample=update[1])
    for vocab in (10, 10_000, 1_000_000):
        for streams in (1, 3, 10, 20):
            steps = eval_steps(config, streams, vocab)
            within = streams * steps * vocab <= LOGITS and streams * steps <= ROWS
            assert steps >= update[1] and (within or steps == update[1])


@pytest.mark.parametrize("size", [3, 4])
def test_every_validation_token_is_counted_once_on_all_ranks(text, size):
    config = LanguageModelingConfig(data=str(text("word")), valid_batch_size=size)
    counts = [
        sum(
            b.target.numel()
            for b in LanguageModelingTask(config, rank, world).eval_batches("valid")
        )
        for world in (1, 2)
        for rank in range(world)
    ]
    assert counts[0] == counts[1] + counts[2] > 0


def test_one_word_less_than_the_split_is_predicted_in_test(text):
    task = LanguageModelingTask(LanguageModelingConfig(data=str(text("word"))))
    targets = sum(batch.target.numel() for batch in task.eval_batches("test"))
    assert targets == len(task.splits["test"]) - 1


@pytest.fixture
def reviews(tmp_path):
    """Texts of 3 to 12 words, labelled positive if they contain `good`; optionally with word vectors."""

    def make(vectors):
        vocab = Vocab(["a", "b", "c", "good", "bad"], [9, 8, 7, 6, 5])
        folder = tmp_path / "reviews"
        folder.mkdir()
        vocab.save(folder / "dict.txt")
        chance = np.random.default_rng(1)
        sizes = {"train": 102, "valid": 21, "test": 15}
        for split, size in sizes.items():
            with CorpusWriter(folder / split, len(vocab)) as writer:
                for item in range(size):
                    words = chance.integers(0, 3, chance.integers(3, 13))
                    words[chance.integers(0, 3)] = 3 if item % 2 else 4
                    writer.write(words.astype(np.int64))
                    writer.end_item(item % 2)
        width = {"width": 3} if vectors else None
        if vectors:
            save_array(folder / EMBEDDINGS, chance.normal(size=(6, 3)).astype(np.float32))
        splits = {split: {} for split in sizes}
        Meta(
            "classification",
            "toy",
            {"kind": "word"},
            splits,
            "by hand",
            1,
            vocab_size=5,
            pad_id=5,
            num_classes=2,
            embeddings=width,
        ).save(folder)
        return folder

    return make


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("fixed", ["", "--fixed-length"])
def test_classifier_learns(runs, reviews, vectors, fixed):
    folder = reviews(vectors)
    base = BASE.replace("--max-epoch 2", "--max-epoch 12").replace(".01", ".03")
    flags = f"--arch plstm_classifier_imdb --max-length 12 --dropout 0 {fixed} {folder}"
    assert runs("c", flags, base) == 0
    saved = runs.checkpoint("c")
    assert saved["train_state"]["best_values"]["accuracy"] > 0.9
    config = saved["config"]["model"]
    assert config["read_at"] == ("end" if fixed else "last")
    assert config["freeze_embed"] == vectors
    if vectors:
        table = np.load(folder / EMBEDDINGS)
        assert np.array_equal(saved["model"]["stack.embed.weight"].numpy(), table)


@pytest.mark.parametrize("batches", ["", "--max-tokens 60"])
def test_classifier_stops_and_resumes_bitwise(runs, reviews, batches):
    folder = reviews(True)
    flags = f"--arch lstm_classifier_imdb --max-length 9 {folder} {batches}"
    runs("whole", flags, BASE)
    runs.stop_after(7, "broken", flags, BASE)
    runs("broken", flags, BASE)
    whole, broken = (runs.checkpoint(n)["model"] for n in ("whole", "broken"))
    assert all(torch.equal(whole[name], broken[name]) for name in whole)


def test_fewer_tokens_per_update_are_more_updates_of_the_same_texts(runs, reviews):
    flags = f"--arch lstm_classifier_imdb --max-length 9 {reviews(True)} --max-epoch 1 --max-tokens"
    for most in (18, 60):
        assert runs(str(most), f"{flags} {most}", BASE) == 0
    few, many = (runs.state(str(most)) for most in (18, 60))
    assert few["update"] > 2 * many["update"] and few["epoch"] == many["epoch"]
    assert few["steps"] == many["steps"]


def test_the_last_small_batch_of_two_ranks(reviews):
    config = ClassificationConfig(data=str(reviews(False)), batch_size=4)
    parts = [list(ClassificationTask(config, rank, 2).eval_batches("valid")) for rank in (0, 1)]
    assert [len(b.x) for b in parts[0]] == [2, 2, 2, 2, 2, 0]  # 21 texts
    assert [len(b.x) for b in parts[1]] == [2, 2, 2, 2, 2, 1]


def test_a_folder_for_another_task(runs, reviews, text, capsys):
    data = reviews(False)
    assert runs("a", f"--arch plstm_lm {data}", BASE) == 2
    said = capsys.readouterr().err
    assert "was preprocessed for classification, which trains a classifier" in said
    assert said.endswith("accepted: --arch plstm_classifier\n")
    assert runs("a", f"--arch plstm_lm {data} --task classification", BASE) == 2
    told = "accepted: --arch plstm_classifier, or with --arch plstm_lm --task language_modeling"
    assert told in capsys.readouterr().err
    assert runs("b", f"--arch plstm_classifier {text('word')}", BASE) == 2
    assert "was preprocessed for language_modeling" in capsys.readouterr().err
