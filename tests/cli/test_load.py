"""tsm.load: a checkpoint and its .tsm file give the same results, which are also those of the commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tsm
from small_models import small
from tolerances import assert_close
from tsm.export.tsm.package import package
from tsm.plugin.trained import open_trained
from tsm.runtime import TsmError

USER_DIR = Path(__file__).parents[2] / "examples" / "user_dir"


@pytest.fixture(scope="session")
def packaged(tmp_path_factory):
    """A checkpoint as a .tsm file."""
    made = {}

    def make(path):
        if path not in made:
            out = tmp_path_factory.mktemp("tsm") / "model.tsm"
            made[path] = package(open_trained(path), out).path
        return made[path]

    return make


@pytest.fixture(params=["checkpoint", "tsm"])
def opened(request, packaged):
    def load(path):
        return tsm.load(path if request.param == "checkpoint" else packaged(path))

    return load


@pytest.fixture(params=["word", "char", "pieces"])
def text_model(request):
    return request.getfixturevalue(request.param)


def test_generate_is_tsm_generate(text_model, opened, run_generate):
    """Compares greedy generation; sampled symbols depend on the seed and the kind of file."""
    model = opened(text_model.path)
    for prompt in ("the cat", "the dog sat\nthe", ""):
        flags = ("--prompt", prompt, "--length", 12)
        _, out, _ = run_generate("--path", text_model.path, *flags, "--temperature", 0)
        assert prompt + model.generate(prompt, 12, temperature=0) + "\n" == out
        drawn = [model.generate(prompt, 12, seed=seed, top_k=5) for seed in (3, 3, 4)]
        assert drawn[0] == drawn[1] != drawn[2]
        if text_model.path == model.path:
            _, out, _ = run_generate("--path", text_model.path, *flags, "--seed", 3, "--top-k", 5)
            assert prompt + drawn[0] + "\n" == out


def test_score(text_model, opened, exact):
    """Scores equal those of the model in float64, starting after the end of a line."""
    model = opened(text_model.path)
    text = "the cat sat on a mat\nand then the dog"
    found = model.score(text)
    tokens = model.vocab.ids(found.symbols)
    assert model.tokenizer.decode(tokens, model.vocab) == text
    bits = exact(text_model.path, [model.vocab.start, *tokens]).numpy()
    assert_close(-found.log_probs / np.log(2), bits, "stream", "float32")
    assert found.bits == pytest.approx(bits.mean(), rel=1e-5)
    assert found.perplexity == pytest.approx(2 ** bits.mean(), rel=1e-5)


def test_predict_texts(reviews, opened):
    """Any number of texts of any length are read as in training, each separately."""
    model = opened(reviews.path)
    texts = ["the cat", "a bird sang\nnear the tree", "slowly", *(["house mat"] * 70)]
    found = model.predict(texts)
    trained = open_trained(reviews.path)
    for number, text in enumerate(texts[:4]):
        row = trained.tokenizer.encode_line(text.replace("\n", " "), trained.vocab)
        logits, _ = trained.model(torch.tensor([row]))
        expected = torch.softmax(logits[0].double(), -1).detach()
        assert_close(found.probabilities[number], expected, "stream", "float32", text)
    assert found.indices.tolist() == found.probabilities.argmax(1).tolist()
    assert model.labels == trained.labels == ["negative", "positive"]
    assert found.labels == [model.labels[i] for i in found.indices]
    assert model.predict("the cat").labels == found.labels[:1]
    tokens = [model.tokenizer.encode_line("the cat", model.vocab)]
    assert np.allclose(model.predict(tokens).probabilities, found.probabilities[:1], atol=1e-6)


def test_a_checkpoint_reads_as_many_words_as_in_training(reviews):
    model = tsm.load(reviews.path)
    words = ["cat", "dog", "bird", "sat"] * 20
    assert model.reads == 40
    cut, whole = (model.predict(" ".join(w)).probabilities for w in (words[:40], words))
    assert np.array_equal(cut, whole)


def test_a_checkpoint_that_reads_through_the_padding(reviews, tmp_path):
    """The input is padded to the training length, and the model reads the padding too."""
    checkpoint = torch.load(reviews.path, weights_only=True)
    checkpoint["config"]["model"]["read_at"] = "end"
    torch.save(checkpoint, tmp_path / "end.pt")
    model = tsm.load(tmp_path / "end.pt")
    row = model.tokenizer.encode_line("the cat", model.vocab)
    padded = row + [model.vocab.pad_id] * (40 - len(row))
    logits, _ = open_trained(reviews.path).model(torch.tensor([padded]))
    expected = torch.softmax(logits.double(), -1).detach()
    assert_close(model.predict("the cat").probabilities, expected, "stream", "float32")


def test_predict_values_with_time_steps(tmp_path):
    network = small("plstm_classifier", input_size=3)
    model = tsm.load(package(network, tmp_path / "m.tsm").path)
    rows = [np.random.default_rng(n).normal(size=(n, 3)) for n in (4, 1, 7)]
    dts = [np.linspace(0.5, 2, len(row)) for row in rows]
    found = model.predict(rows, dts)
    assert found.labels == found.indices.tolist()  # no names
    for number, (row, dt) in enumerate(zip(rows, dts, strict=True)):
        x, steps = (torch.tensor(a[None], dtype=torch.float32) for a in (row, dt))
        expected = torch.softmax(network(x, dt=steps)[0].double(), -1).detach()[0]
        assert_close(found.probabilities[number], expected, "stream", "float32")
    whole = np.stack([rows[0], rows[0]])
    assert_close(
        model.predict(whole).probabilities[1], model.predict(rows[:1]).probabilities[0], "stream",
        "float32",
    )  # fmt: skip
    lists = [row.astype(np.float32).tolist() for row in rows]
    equal = [[0.5] * len(row) for row in rows]
    assert_close(
        np.stack(model.logits(lists, 0.5)), np.stack(model.logits(rows, equal)), "stream", "float32"
    )
    assert not np.array_equal(model.logits(rows)[0], model.logits(rows, 0.5)[0])
    for number in (np.array(0.5), torch.tensor(0.5), np.float32(0.5)):
        assert np.array_equal(model.logits(rows, number)[0], model.logits(rows, 0.5)[0])
    for wrong in (dts[:2], [0.5, 0.5, 0.5], "0.5", 1j, np.array("0.5x"), np.array(1j)):
        with pytest.raises(ValueError, match="dt does not fit the inputs; accepted: a number, or"):
            model.predict(rows, wrong)
    with pytest.raises(ValueError, match=r"inputs\[1\] is .*accepted: \[T, 3\] values"):
        model.predict([rows[0], rows[1][:, :2]])
    with pytest.raises(ValueError, match="has no dictionary: it was not trained on text"):
        model.predict("a text")


def test_a_file_that_is_no_model(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    with pytest.raises(TsmError, match=r"notes\.txt"):
        tsm.load(path)
    with pytest.raises(ValueError, match="is a folder; accepted: a checkpoint"):
        tsm.load(tmp_path)
    with pytest.raises(FileNotFoundError):
        tsm.load(tmp_path / "none.tsm")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match=r"other\.pt"):
        tsm.load(tmp_path / "other.pt")


def test_a_model_of_another_kind(word, reviews, tagger, opened):
    lm, classifier = opened(word.path), opened(reviews.path)
    message = r"predict\(\) needs a classifier; .* is a language model; it has generate and score"
    with pytest.raises(ValueError, match=message):
        lm.predict("the cat")
    with pytest.raises(ValueError, match=r"score\(\) needs a language model; .*it has predict"):
        classifier.score("the cat")
    with pytest.raises(ValueError, match=r"generate\(\) needs a .* is a tagger; call its \.model"):
        opened(tagger).generate()


def test_bad_inputs(word, reviews, opened):
    lm, classifier = opened(word.path), opened(reviews.path)
    for call, message in [
        (lambda: lm.score(""), "text is empty"),
        (lambda: lm.score(["the"]), "text is a list; accepted: a str"),
        (lambda: lm.score("zebra"), "symbol 'zebra' is not in the dictionary"),
        (lambda: lm.generate("the", 5, temperature=-1), "temperature"),
        (lambda: lm.generate("the", -1), "-1"),
        (lambda: classifier.predict([]), "inputs is empty"),
        (lambda: classifier.predict([""]), r"inputs\[0\] is ''; accepted: a text with a word"),
        (lambda: classifier.predict([[]]), r"inputs\[0\] is .*at least one step"),
        (lambda: classifier.predict([[0.5]]), r"inputs\[0\] is float64 \(1,\); .*\[T\] tokens"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_settings_of_a_tsm_file(word, packaged):
    assert tsm.load(packaged(word.path), dtype="bfloat16").model.dtype == "bfloat16"
    with pytest.raises(ValueError, match=r"dtype = 'bfloat16', threads = 1: .* is a checkpoint"):
        tsm.load(word.path, dtype="bfloat16")


def test_a_device_that_is_not_there(word, packaged, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for path in (word.path, packaged(word.path)):
        with pytest.raises(ValueError, match=r"device.*gpu.*accepted: cpu, cuda"):
            tsm.load(path, device="gpu")
    with pytest.raises(ValueError, match=r"device cuda: .*; accepted here: cpu"):
        tsm.load(word.path, device="cuda")


def test_a_tsm_file_needs_no_torch(word, packaged):
    code = (
        "import sys; sys.modules['torch'] = None; import tsm; "
        f"print(len(tsm.load({str(packaged(word.path))!r}).generate('the', 3).split()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 3


def test_a_checkpoint_of_a_users_cell(tmp_path):
    """A new process knows the cell only by `user_dir`."""
    flags = f"--user-dir {USER_DIR} --arch leaky_lm --decoder-hidden-size 4 --decoder-embed-dim 4"
    flags += f" --max-update 2 --log-format none --cpu --save-dir {tmp_path}"
    program = [sys.executable, "-m", "tsm.plugin.cli.train", *flags.split()]
    subprocess.run(program, check=True, capture_output=True)
    path = str(tmp_path / "checkpoint_best.pt")
    code = f"""
import tsm
try:
    tsm.load({path!r})
except ValueError as error:
    print("user_dir= of tsm.load" in str(error), "leaky" in str(error))
checkpoint = tsm.load({path!r}, user_dir={str(USER_DIR)!r})
from tsm.export.tsm.package import package
file = tsm.load(package(checkpoint.trained, {path + ".tsm"!r}).path)
text = "the old sailor"
print(abs(checkpoint.score(text).log_probs - file.score(text).log_probs).max() < 1e-5)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True"] * 3, done.stderr
