"""tsm-stream: reads stdin, however it is split, and prints the model's numbers, without torch."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cli import stream as stream_command
from tsm.plugin.cli._symbol_stream import symbol_stream
from tsm.plugin.data import Vocab
from tsm.plugin.trained import open_trained

ABSOLUTE = 1e-4  # nats: float32 against float64


class Trickle(io.RawIOBase):
    """A pipe that gives a few bytes at a time, so that characters and words are split."""

    def __init__(self, data, sizes=(1, 2, 3, 5)):
        self.data, self.sizes, self.reads = data, sizes, 0

    def readable(self):
        return True

    def readinto(self, room):
        size = min(self.sizes[self.reads % len(self.sizes)], len(room), len(self.data))
        self.reads += 1
        room[:size], self.data = self.data[:size], self.data[size:]
        return size


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """path(checkpoint) -> its .tsm file."""
    made = {}

    def path(checkpoint):
        if checkpoint not in made:
            made[checkpoint] = tmp_path_factory.mktemp("tsm") / "model.tsm"
            package(open_trained(checkpoint), made[checkpoint])
        return made[checkpoint]

    return path


@pytest.fixture
def run_stream(capsys, monkeypatch):
    """Runs tsm-stream on this input; returns exit code, stdout, stderr."""

    def call(data, *args, trickle=False):
        raw = data if isinstance(data, bytes) else data.encode()
        source = io.BufferedReader(Trickle(raw)) if trickle else io.BytesIO(raw)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(source))
        capsys.readouterr()
        code = stream_command.main([str(a) for a in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def rows_of(result):
    code, out, err = result
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def tokens_of(trained, text):
    stream = symbol_stream(trained.tokenizer)
    return trained.vocab.ids([*stream.add(text), *stream.close()])


@pytest.mark.parametrize("kind", ["word", "char", "pieces"])
def test_scores(kind, request, exported, run_stream, exact):
    """Log-probabilities are those of the model in PyTorch, however the text is split."""
    fixture = request.getfixturevalue(kind)
    trained = open_trained(fixture.path)
    text = fixture.text[:400]
    tokens = tokens_of(trained, text)
    model = exported(fixture.path)
    rows = rows_of(run_stream(text, model, "--format", "json"))
    assert [row["id"] for row in rows] == tokens
    assert [row["position"] for row in rows] == list(range(len(tokens)))
    assert [row["token"] for row in rows] == [trained.vocab[t] for t in tokens]
    bits = exact(fixture.path, tokens).numpy()
    np.testing.assert_allclose(
        [r["surprisal"] for r in rows[1:]], bits, atol=ABSOLUTE / math.log(2)
    )
    np.testing.assert_allclose(
        [r["log_prob"] for r in rows], [-r["surprisal"] * math.log(2) for r in rows], atol=1e-6
    )
    again = run_stream(text, model, "--format", "json", "--chunk", "3", trickle=True)
    assert rows_of(again) == rows  # to the last bit


def test_unicode_in_halves(pieces, exported, run_stream):
    """The bytes of one character come in two reads; nothing is lost, and there is no error."""
    text = "the 猫 sat\non 🐈\n"
    model = exported(pieces.path)
    whole = rows_of(run_stream(text, model, "--format", "json"))
    assert rows_of(run_stream(text, model, "--format", "json", trickle=True)) == whole
    assert "".join(r["token"] for r in whole).count("<0x") >= 3


def test_tokens(word, exported, run_stream):
    trained, model = open_trained(word.path), exported(word.path)
    text = "the cat sat on the mat\n"
    tokens = tokens_of(trained, text)
    by_text = rows_of(run_stream(text, model, "--format", "json"))
    numbers = " ".join(map(str, tokens))
    for trickle in (False, True):
        rows = rows_of(run_stream(numbers, model, "--tokens", "--format", "json", trickle=trickle))
        assert rows == by_text


def test_state_goes_on(word, exported, run_stream, tmp_path):
    """Two commands, with the state saved in between, give the same output as one command."""
    model, text = exported(word.path), word.text[:300]
    cut = text.index("\n", 100) + 1
    state = tmp_path / "state.bin"
    whole = rows_of(run_stream(text, model, "--format", "json"))
    first = rows_of(run_stream(text[:cut], model, "--format", "json", "--save-state", state))
    second = rows_of(run_stream(text[cut:], model, "--format", "json", "--load-state", state))
    assert first + second == whole
    assert second[0]["position"] == len(first) > 0


def test_state_before_bad_input(word, exported, run_stream, fails, tmp_path):
    """Input before the error is not lost: the saved state is the one after the rows that were printed."""
    model, state = exported(word.path), tmp_path / "state.bin"
    flags = (model, "--format", "json", "--chunk", "3")
    whole = rows_of(run_stream("the cat sat on the mat\n", *flags))
    broken = run_stream("the cat sat zebra", *flags, "--save-state", state)
    fails(broken, "'zebra'", "no <unk>", f"{state} has the state at position 3")
    first = [json.loads(line) for line in broken[1].splitlines()]
    second = rows_of(run_stream("on the mat\n", *flags, "--load-state", state))
    assert len(first) == 3 and first + second == whole
    kept = state.read_bytes()  # a run that accepts no input writes nothing
    fails(run_stream("zebra", *flags, "--save-state", state), "'zebra'")
    assert state.read_bytes() == kept


def test_a_place_for_the_state(word, exported, run_stream, fails, tmp_path):
    """The path is checked before any input is read, and the message names it as given."""
    (tmp_path / "file").touch()
    for place in (tmp_path / "none" / "s.bin", tmp_path / "file" / "s.bin", tmp_path):
        result = run_stream("the cat\n", exported(word.path), "--save-state", place)
        fails(result, f"--save-state {place} ")
        assert result[1] == ""


def test_dtypes(word, exported, run_stream):
    """Rounded weights give nearly, but not exactly, the same numbers."""
    model = exported(word.path)
    exact_rows = rows_of(run_stream(word.text[:200], model, "--format", "json"))
    for dtype in ("bfloat16", "int8"):
        code, out, err = run_stream(word.text[:200], model, "--format", "json", "--dtype", dtype)
        assert code == 0 and dtype in err
        rows = [json.loads(line) for line in out.splitlines()]
        difference = [a["log_prob"] - b["log_prob"] for a, b in zip(rows, exact_rows, strict=True)]
        assert 0 < np.abs(difference).max() < 0.1


def test_unknown_words(word, char, few_words, exported, run_stream, fails):
    """An unknown word becomes <unk>, with a message; without <unk> in the dictionary, an error names the
    word."""
    code, out, err = run_stream(
        "the zebra sat zebra\n", exported(few_words.path), "--format", "json"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    unk = open_trained(few_words.path).vocab.unk
    assert code == 0 and unk is not None
    assert rows[1]["id"] == rows[3]["id"] == unk
    assert rows[1]["token"] == "zebra"
    assert "3 read as <unk>" in err and "'zebra'" in err
    fails(run_stream("the zebra sat\n", exported(word.path)), "'zebra'", "no <unk>")
    fails(run_stream("the Ж sat\n", exported(char.path)), "'Ж'", "no <unk>")


def test_a_final_newline_that_the_dictionary_lacks_is_not_fed(run_stream, tmp_path):
    vocab = Vocab([*"ab "], [1] * 3)
    model = build_model("lstm_lm", vocab_size=3, decoder_hidden_size=2, decoder_embed_dim=2)
    path = tmp_path / "m.tsm"
    package(model, path, assets={"dict.txt": vocab.dumps()}, tokenizer="char")
    code, out, _ = run_stream("ab a\n", path, "--format", "json", trickle=True)
    assert code == 0 and len(out.splitlines()) == 4
    code, _, err = run_stream("ab\na\n", path)
    assert code == 2 and "symbol '\\n' is not in the dictionary" in err


def test_generation(word, exported, run_stream):
    """The continuation is the runtime's, as text or as rows; a seed reproduces it; the final newline is not
    fed."""
    from tsm.runtime import Model

    trained, path = open_trained(word.path), exported(word.path)
    stream = Model.load(path).create_stream()
    stream.feed(trained.tokenizer.encode("the cat", trained.vocab), last_only=True)
    expected = stream.generate(20, temperature=0.8, seed=3).tolist()
    flags = ("--generate", "20", "--temperature", "0.8", "--seed", "3")
    rows = rows_of(run_stream("the cat\n", path, *flags, "--format", "json"))
    assert [row["id"] for row in rows] == expected
    assert rows[0]["position"] == 2
    code, out, err = run_stream("the cat\n", path, *flags)
    symbols = ["the", "cat", *(trained.vocab[t] for t in expected)]
    assert code == 0 and out == trained.tokenizer.text(symbols) + "\n"
    assert "20 generated" in err
    greedy = run_stream("the cat", path, "--generate", "5", "--temperature", "0")[1]
    assert (
        greedy == run_stream("the cat", path, "--generate", "5", "--top-k", "1", "--seed", "9")[1]
    )


@pytest.mark.parametrize(
    "flag, value",
    [
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--top-p", "0"),
        ("--top-k", "-1"),
        ("--seed", str(1 << 64)),
    ],
)
def test_bad_sampling(word, exported, run_stream, fails, flag, value):
    """The message names the flag and is printed before the prompt."""
    result = run_stream("the cat", exported(word.path), "--generate", "5", flag, value)
    fails(result, flag, "accepted")
    assert result[1] == ""


def test_more_than_all(word, exported, run_stream):
    flags = ("the cat", exported(word.path), "--generate", "5")
    assert run_stream(*flags, "--top-k", str(1 << 70))[:2] == run_stream(*flags)[:2]


def test_generation_from_nothing(char, exported, run_stream):
    code, out, _ = run_stream("", exported(char.path), "--generate", "12")
    assert code == 0 and len(out) == 13


@torch.no_grad()
def test_classifier(reviews, exported, run_stream):
    """Probabilities after every token; the last ones are those of the whole text."""
    trained = open_trained(reviews.path)
    text = "the cat sat<br />near a tree"
    tokens = trained.tokenizer.encode(text, trained.vocab)
    logits, _ = trained.model(torch.tensor([tokens]))
    rows = rows_of(run_stream(text, exported(reviews.path), "--format", "json", trickle=True))
    assert len(rows) == len(tokens)
    np.testing.assert_allclose(
        rows[-1]["probabilities"], torch.softmax(logits[0], -1), atol=ABSOLUTE
    )
    assert rows[-1]["best"] == int(logits.argmax())
    assert all(math.isclose(sum(r["probabilities"]), 1, abs_tol=1e-6) for r in rows)
    half, _ = trained.model(torch.tensor([tokens[:3]]))
    np.testing.assert_allclose(rows[2]["probabilities"], torch.softmax(half[0], -1), atol=ABSOLUTE)


@torch.no_grad()
def test_values(run_stream, tmp_path):
    """A model with numeric inputs reads rows of numbers, which may be split over lines."""
    model = build_model("plstm_tagger", input_size=3, num_classes=4, decoder_hidden_size=8).eval()
    package(model, tmp_path / "m.tsm")
    x = torch.randn(5, 3)
    expected = torch.softmax(model(x[None])[0][0], -1)
    text = "\n".join(" ".join(f"{v:.9g}" for v in row) for row in x.tolist())
    rows = rows_of(run_stream(text, tmp_path / "m.tsm", "--format", "json", trickle=True))
    np.testing.assert_allclose([r["probabilities"] for r in rows], expected, atol=ABSOLUTE)
    dt = torch.rand(5) + 0.5
    expected = torch.softmax(model(x[None], dt=dt[None])[0][0], -1)
    for where, parts in (("first", (dt[:, None], x)), ("last", (x, dt[:, None]))):
        text = "\n".join(" ".join(f"{v:.9g}" for v in r) for r in torch.cat(parts, 1).tolist())
        found = run_stream(
            text, tmp_path / "m.tsm", "--dt", where, "--format", "json", trickle=True
        )
        probabilities = [row["probabilities"] for row in rows_of(found)]
        np.testing.assert_allclose(probabilities, expected, atol=ABSOLUTE)
    code, _, err = run_stream("1 2 3 4 5", tmp_path / "m.tsm", "--dt", "last")
    assert code == 2 and "ends with 1 numbers of a row; accepted: rows of 4, 3 and dt" in err
    code, _, err = run_stream("1 2 3 -4", tmp_path / "m.tsm", "--dt", "last")
    assert code == 2 and "dt" in err
    code, _, err = run_stream("1 2 3 4", tmp_path / "m.tsm")
    assert code == 2 and "rows of 3" in err
    code, _, err = run_stream("1 2 x", tmp_path / "m.tsm")
    assert code == 2 and "number 3 is 'x'" in err
    whole = rows_of(run_stream("1 2\n3\n4 5 6 7 8 9\n", tmp_path / "m.tsm", "--format", "json"))
    assert [row["position"] for row in whole] == [0, 1, 2]


@pytest.mark.parametrize("trickle", [False, True])
def test_a_line_of_another_width(run_stream, trickle, tmp_path):
    """Lines of 4 numbers are not rows of 3, even if all numbers together would fill whole rows."""
    model = build_model("plstm_tagger", input_size=3, num_classes=4, decoder_hidden_size=8)
    package(model, tmp_path / "m.tsm")
    lines = "1 2 3\n" + "4 5 6 7\n" * 3
    code, _, err = run_stream(lines, tmp_path / "m.tsm", trickle=trickle)
    assert code == 2 and "line 2 has 4 numbers; accepted: rows of 3" in err


@pytest.mark.parametrize("trickle", [False, True])
def test_a_line_without_one_of_its_numbers(run_stream, trickle, tmp_path):
    """The next line does not lend it one, even if other short lines make up for that."""
    model = build_model("plstm_tagger", input_size=3, num_classes=4, decoder_hidden_size=8)
    package(model, tmp_path / "m.tsm")
    code, _, err = run_stream("1 2 3\n4 5\n7 8 9\n1\n", tmp_path / "m.tsm", trickle=trickle)
    assert code == 2 and "line 3 has 3 numbers after 2 of an incomplete row; accepted: rows" in err


def test_formats(word, exported, run_stream):
    model, text = exported(word.path), "the cat\n"
    code, tsv, err = run_stream(text, model)  # no terminal: TSV
    lines = [line.split("\t") for line in tsv.splitlines()]
    assert lines[0] == ["position", "id", "token", "log_prob", "surprisal"]
    assert [line[2] for line in lines[1:]] == ["the", "cat", "<eos>"] and code == 0
    _, shown, _ = run_stream(text, model, "--format", "table")
    assert len({len(line) for line in shown.splitlines()}) == 1  # columns
    assert "bits per token" in err and "per second" in err and "3 tokens" in err
    code, out, err = run_stream(text, model, "--quiet")
    assert (code, out) == (0, "") and "3 tokens" in err
    assert rows_of(run_stream("", model, "--format", "json")) == []


def test_bad_input(word, reviews, tagger, exported, run_stream, fails, tmp_path):
    model = exported(word.path)
    fails(run_stream("", tmp_path / "none.tsm"), "none.tsm")
    (tmp_path / "bad.tsm").write_bytes(b"no model at all")
    fails(run_stream("", tmp_path / "bad.tsm"), "bad.tsm")
    fails(run_stream("x", model, "--dtype", "float8"), "float8", "int8")
    fails(run_stream("x", model, "--threads", "0"), "an integer of at least 1")
    fails(run_stream(b"the \xff cat\n", model), "not UTF-8 at byte 4")
    fails(run_stream(b"the \xe7", model), "not UTF-8 at byte 4")
    fails(run_stream("1 2 99999", model, "--tokens"), "token 3", "99999")
    fails(run_stream("1 -2", model, "--tokens"), "token 2", "-2")
    fails(run_stream("x", exported(reviews.path), "--generate", "3"), "language model")
    fails(run_stream("x", exported(tagger)), "--tokens")
    fails(run_stream("x", model, "--dt", "last"), "--dt", "reads text or tokens")
    fails(run_stream("x", model, "--load-state", tmp_path / "none.bin"), "none.bin")
    (tmp_path / "bad.bin").write_bytes(b"not a state")
    fails(run_stream("x", model, "--load-state", tmp_path / "bad.bin"), "state")
    other = tmp_path / "other.bin"
    assert run_stream("", exported(reviews.path), "--save-state", other)[0] == 0
    fails(run_stream("x", model, "--load-state", other))
    fails(run_stream("x", model, "--chunks", "3"), "--chunk")


def test_as_it_arrives_and_without_torch(char, exported, tmp_path):
    """A real process that cannot import torch answers each character before the next one is sent."""
    code = "import sys; sys.modules['torch'] = None\n"
    code += "from tsm.plugin.cli.stream import main; raise SystemExit(main())"
    flags = [exported(char.path), "--format", "json", "--save-state", tmp_path / "s.bin"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, flags)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ,
    ) as process:  # fmt: skip
        for character in "the":
            process.stdin.write(character.encode())
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["token"] == character
        _, err = process.communicate()
    assert process.returncode == 0 and b"3 tokens" in err
    assert (tmp_path / "s.bin").stat().st_size > 0
