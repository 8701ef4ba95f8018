"""tsm-generate needs only a checkpoint, gives the same text for the same seed, prints tokens as they are drawn,
and prints exactly those."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest
import torch

from tsm.plugin.cli.generate import main
from tsm.plugin.cli.preprocess import main as preprocess
from tsm.plugin.cli.train import main as train
from tsm.plugin.data import DataDir, Vocab
from tsm.plugin.data.vocab import unescape
from tsm.plugin.trained import open_trained


def tokens_of(run_generate, *args) -> list[int]:
    code, out, err = run_generate(*args, "--output-tokens")
    assert (code, err) == (0, "")
    return [int(line.split("\t")[0]) for line in out.splitlines()]


@pytest.fixture(params=["word", "char", "pieces"])
def made(request):
    return request.getfixturevalue(request.param)


def test_text_is_the_decoded_tokens_without_the_data(run_generate, made):
    args = ("--path", made.path, "--prompt", "the cat", "--length", 150, "--seed", 5)
    moved = made.data.with_name("moved")
    made.data.rename(moved)
    try:
        code, out, err = run_generate(*args)
        tokens = tokens_of(run_generate, *args)
    finally:
        moved.rename(made.data)
    assert (code, err) == (0, "")
    trained = open_trained(made.path)
    prompt = trained.tokenizer.encode("the cat", trained.vocab)
    assert len(tokens) == 150
    assert out == trained.tokenizer.decode([*prompt, *tokens], trained.vocab) + "\n"
    assert out.startswith("the cat")


def test_same_seed_same_text(run_generate, made):
    args = ("--path", made.path, "--length", 40)
    assert run_generate(*args) == run_generate(*args, "--seed", 0)
    assert run_generate(*args, "--seed", 1) != run_generate(*args)
    cold = ("--temperature", 0)
    assert run_generate(*args, *cold) == run_generate(*args, *cold, "--seed", 9)
    assert run_generate(*args, "--top-k", 1) == run_generate(*args, *cold)


def test_first_token_is_the_most_probable_after_the_prompt(run_generate, word):
    trained = open_trained(word.path)
    ids = trained.vocab.ids(["the", "cat", "<eos>", "a"])
    with torch.no_grad():
        logits, _ = trained.model(torch.tensor([ids]))
    args = ("--path", word.path, "--prompt", "the cat\na", "--length", 1, "--temperature", 0)
    assert tokens_of(run_generate, *args) == [int(logits[0, -1].argmax())]


def test_pieces_round_trip(run_generate, pieces):
    """Text -> pieces -> text is exact, and so is pieces -> text -> pieces for ordinary pieces."""
    trained = open_trained(pieces.path)
    tokenizer, vocab = trained.tokenizer, trained.vocab
    for seed in range(5):
        _, out, _ = run_generate("--path", pieces.path, "--length", 200, "--seed", seed)
        text = out.removesuffix("\n")
        assert (
            "\n".join(
                tokenizer.decode(tokenizer.encode(line, vocab), vocab) for line in text.split("\n")
            )
            == text
        )
    usual = tokenizer.encode("the cat sat on a mat", vocab)
    assert tokenizer.encode(tokenizer.decode(usual, vocab), vocab) == usual


def test_prompt_from_stdin(run_generate, word, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n"))
    args = ("--path", word.path, "--length", 5)
    assert run_generate(*args, "--prompt", "-") == run_generate(*args, "--prompt", "the cat")


def test_words_come_as_they_are_made(word, monkeypatch):
    class Terminal(io.StringIO):
        shown: list[str] = []  # noqa: RUF012

        def flush(self):
            self.shown.append(self.getvalue())

    monkeypatch.setattr(sys, "stdout", Terminal())
    argv = ["--path", str(word.path), "--prompt", "the", "--length", "10", "--cpu"]
    assert main(argv) == 0
    assert Terminal.shown[0] == "the"
    assert len(set(Terminal.shown)) >= 10
    assert all(b.startswith(a) for a, b in zip(Terminal.shown, Terminal.shown[1:], strict=False))


def test_reader_that_has_enough(word):
    argv = [sys.executable, "-m", "tsm.plugin.cli.generate", "--path", str(word.path)]
    process = subprocess.Popen(
        [*argv, "--length", "1000000", "--cpu"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def test_unknown_words(run_generate, fails, word, tmp_path, capsys):
    result = run_generate("--path", word.path, "--prompt", "the catt")
    fails(result, "'catt' is not in the dictionary", "close: 'cat'")
    (tmp_path / "t.txt").write_text("a a a b b c\n" * 50)
    names = [f for s in ("train", "valid") for f in (f"--{s}pref", str(tmp_path / "t.txt"))]
    flags = ["--threshold", "60", "--destdir", str(tmp_path / "d")]
    assert preprocess([*names, *flags]) == 0
    flags = ["--arch", "lstm_lm", "--max-update", "1", "--decoder-hidden-size", "4", "--cpu"]
    flags += ["--decoder-embed-dim", "4", "--log-format", "none", "--batch-size", "2"]
    assert train([str(tmp_path / "d"), *flags, "--save-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    path = tmp_path / "checkpoint_last.pt"
    code, out, err = run_generate("--path", path, "--prompt", "a zebra", "--length", 0)
    assert (code, out) == (0, "a <unk>\n")
    assert "read as <unk>: 'zebra'" in err


def test_bad_input(run_generate, fails, word, reviews, tagger, tmp_path):
    fails(run_generate("--path", tmp_path / "no.pt"), "does not exist")
    fails(run_generate("--path", reviews.path), "is a classifier; accepted: a language model")
    fails(run_generate("--path", tagger), "is a tagger")
    fails(run_generate("--path", word.path, "--temperature", -1), "temperature is -1")
    fails(run_generate("--path", word.path, "--top-p", 0), "top_p is 0")
    fails(run_generate("--path", word.path, "--length", "x"), "--length", "integer")
    fails(run_generate("--path", word.path, "--lenght", 3), "did you mean --length?")


def test_the_tokenizer_is_the_one_of_the_data(made):
    kind = DataDir(made.data).meta.tokenizer["kind"]
    trained = open_trained(made.path)
    assert trained.config["text"]["tokenizer"] == trained.tokenizer.kind == kind


def test_an_empty_prompt_is_the_end_of_a_line():
    def first(*symbols):
        return Vocab(symbols, range(len(symbols))).start

    assert first("a", "<eos>", "b") == 1
    assert first("a", "\n", " ") == 1
    assert first("a", " ", "b") == 1
    assert first("a", "b", "c") == 2


def test_symbols_are_escaped(run_generate, char):
    _, out, _ = run_generate("--path", char.path, "--length", 80, "--output-tokens")
    vocab = open_trained(char.path).vocab
    for line in out.splitlines():
        token, symbol = line.split("\t")
        assert vocab[int(token)] == unescape(symbol)
