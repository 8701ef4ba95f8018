"""Encode and decode through the installed library give the same results as Python's tokenizers."""

from __future__ import annotations

import subprocess

import pytest
import torch

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.data.subword import SentencePieceTokenizer, train_sentencepiece
from tsm.plugin.data.tokenizers import TOKENIZERS, plain_tokenizer
from tsm.plugin.data.vocab import UNK, Vocab
from tsm.runtime import Model

from .commands import ROOT

LINES = ["The old sailor can't swim; ΑΣ isn't Σ.", "a  naïve 3-year-old\t<br />!"]


@pytest.fixture(scope="module")
def program(build):
    return build(ROOT / "tests/cpp_embed/project") / "text"


def packed(path, kind: str, symbols: list[str], **assets: bytes):
    vocab = Vocab(symbols, [1] * len(symbols))
    torch.manual_seed(1)
    model = build_model(
        "lstm_lm", vocab_size=len(symbols), decoder_hidden_size=2, decoder_embed_dim=2
    )
    package(model, path, assets={"dict.txt": vocab.dumps(), **assets}, tokenizer=kind)
    return vocab


def run(command: list, text: bytes, environment) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, input=text, capture_output=True, env=environment)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_text(program, environment, tmp_path, kind):
    tokenizer = plain_tokenizer(kind)
    text = "\n".join(LINES) if tokenizer.end is None else "\n".join([*LINES, ""])
    symbols = tokenizer.symbols(text)
    if tokenizer.end is not None:
        symbols = [symbol for line in LINES for symbol in tokenizer.line_symbols(line)]
    vocab = packed(tmp_path / "model.tsm", kind, sorted({*symbols[::2], *symbols[:3], UNK}))
    ids = vocab.ids(symbols)
    assert vocab.unk in ids and len(set(ids)) > 5
    found = run([program, tmp_path / "model.tsm"], text.encode(), environment)
    assert found.returncode == 0, found.stderr
    tokens, _, decoded = found.stdout.decode().partition(" \n")
    assert [int(token) for token in tokens.split()] == ids
    assert decoded == tokenizer.decode(ids, vocab)
    refused = run([program, tmp_path / "model.tsm"], b"ab\xff", environment)
    assert refused.stderr == b"invalid argument: text is not UTF-8 at byte 2\n"


def test_sentencepiece_is_refused(program, environment, tmp_path):
    pieces = train_sentencepiece([f"{i} ships of {i * i}" for i in range(100)], 280)
    symbols = SentencePieceTokenizer(pieces).vocab_symbols()
    path = tmp_path / "model.tsm"
    packed(path, "sentencepiece", symbols, **{"sentencepiece.model": pieces})
    refused = run([program, path], b"ships", environment)
    assert refused.returncode == 1
    assert refused.stderr.startswith(b'invalid argument: the model\'s tokenizer is "sentencepiece"')


def test_a_text_goes_on(build, environment, tmp_path):
    program = build(ROOT / "examples/embed_cpp") / "complete"
    packed(tmp_path / "model.tsm", "word", ["the", "old", "sailor", UNK, "<eos>"])
    model = Model.load(tmp_path / "model.tsm")
    for text in ("the old\n sailor", ""):
        stream, tokens = model.create_stream(), model.encode(text)
        stream.score(tokens)
        expected = model.decode([*tokens, *stream.generate(9, seed=7)]) + "\n"
        found = run([program, tmp_path / "model.tsm", "9", "7"], text.encode(), environment)
        assert found.stdout.decode() == expected, found.stderr
    missing = run([program, tmp_path / "none.tsm", "9", "7"], b"", environment)
    assert missing.returncode == 1 and missing.stderr.startswith(b"complete: ")
