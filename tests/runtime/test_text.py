"""Model.encode and decode agree with every tokenizer of plugin/data, for any text."""

from __future__ import annotations

import importlib.util
import sys
import unicodedata
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsm.export.tsm.package import package
from tsm.plugin import build_model
from tsm.plugin.cli._symbol_stream import symbol_stream
from tsm.plugin.data.subword import SentencePieceTokenizer, train_sentencepiece
from tsm.plugin.data.tokenizers import TOKENIZERS, Tokenizer, plain_tokenizer
from tsm.plugin.data.vocab import EOS, UNK, Vocab
from tsm.runtime import Model, TsmError

# Parts of texts: strings that tokenizers look for, similar-looking ones, and arbitrary text.
PARTS = [
    "don't",
    "n't",
    "can'tt",
    "'s",
    "'LL",
    "<br />",
    "<BR />",
    "<br",
    " ",
    "  ",
    "\n",
    "\t",
    "\r",
    "\x1c",
]
PARTS += [
    "\x85",
    "\u2028",
    "\u3000",
    "\ufeff",
    "_",
    "a_b",
    "1st",
    "٣",
    "²",
    "Σ",
    "ΑΣ",
    "Σ.Σ",
    "İ",
    "ß",
    "Ǆ",
    "\U0001f600",
]
PARTS += [EOS, UNK, "\u2581", "e\u0301", "\0", "$5.00", "the", "old", "sailor"]
# If Python's version of Unicode differs from the core's, only characters that are older than both are used.
OLD = [
    c
    for c in map(chr, range(sys.maxunicode))
    if unicodedata.ucd_3_2_0.category(c) not in ("Cn", "Cs")
]
CHARACTERS = (
    st.characters(exclude_categories=["Cs"])
    if unicodedata.unidata_version == "14.0.0"
    else st.sampled_from(OLD)
)
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(CHARACTERS, max_size=4), max_size=12).map("".join)


def packed(folder, tokenizer: Tokenizer, dictionary: bytes, size: int) -> Model:
    """A model with `size` tokens whose file contains `dictionary`."""
    sizes = dict(vocab_size=size, decoder_hidden_size=1, decoder_embed_dim=1)
    assets = {"dict.txt": dictionary}
    if isinstance(tokenizer, SentencePieceTokenizer):
        assets["sentencepiece.model"] = tokenizer.model
    path = folder / "model.tsm"
    package(build_model("lstm_lm", **sizes), path, assets=assets, tokenizer=tokenizer.kind)
    return Model.load(path)


def symbols_of(tokenizer: Tokenizer, text: str) -> list[str]:
    """The symbols that tsm-stream reads, as in training: complete lines with their newlines, then the
    unfinished line."""
    stream = symbol_stream(tokenizer)
    return stream.add(text) + stream.close()


def trained_pieces() -> bytes:
    return train_sentencepiece((f"{i} the old sailor of {i * i} ships" for i in range(200)), 300)


@pytest.fixture(scope="module", params=[*TOKENIZERS, "sentencepiece"])
def text_model(request, tmp_path_factory) -> tuple[Model, Tokenizer, Vocab]:
    """Every tokenizer, with a dictionary that has most of PARTS, and <unk>."""
    if request.param == "sentencepiece":
        tokenizer: Tokenizer = SentencePieceTokenizer(trained_pieces())
        symbols = tokenizer.vocab_symbols()
    else:
        tokenizer = plain_tokenizer(request.param)
        known = symbols_of(tokenizer, " ".join(PARTS[: len(PARTS) * 2 // 3]) + "\nthe old sailor\n")
        symbols = sorted({*known, UNK})
    vocab = Vocab(symbols, [1] * len(symbols))
    folder = tmp_path_factory.mktemp(request.param)
    return packed(folder, tokenizer, vocab.dumps(), len(vocab)), tokenizer, vocab


@given(text=TEXTS)
def test_encode_gives_the_tokens_of_training(text_model, text):
    model, tokenizer, vocab = text_model
    found = model.encode(text)
    assert found.dtype == np.int64 and found.ndim == 1
    assert found.tolist() == vocab.ids(symbols_of(tokenizer, text))
    if tokenizer.kind in TOKENIZERS:  # tsm.h promises this to callers that allocate the buffer
        assert len(found) <= len(text.encode())


@given(data=st.data())
def test_decode_gives_the_text_of_tokens(text_model, data):
    model, tokenizer, vocab = text_model
    tokens = data.draw(st.lists(st.integers(0, len(vocab) - 1), max_size=30))
    assert model.decode(tokens) == tokenizer.decode(tokens, vocab)
    assert model.decode(np.array(tokens, np.int32)) == tokenizer.decode(tokens, vocab)


def test_a_text_comes_back(text_model):
    model, tokenizer, _ = text_model
    assert model.tokenizer == tokenizer.kind
    text = "the old sailor" if tokenizer.end is None else "the old sailor\nthe old"
    assert model.decode(model.encode(text)) == text
    assert model.decode([]) == "" and model.encode("").shape == (0,)


def test_tokens_that_are_not_in_the_dictionary(text_model):
    model, _, vocab = text_model
    for token in (-1, len(vocab), 2**40):
        with pytest.raises(TsmError, match=f"token id {token} .*accepted: 0 to {len(vocab) - 1}"):
            model.decode([0, token])


def test_what_is_no_text(text_model):
    model, _, _ = text_model
    with pytest.raises(TsmError, match="text is a bytes; accepted: str"):
        model.encode(b"the")
    with pytest.raises(TsmError, match="surrogate pair at character 1;"):
        model.encode("a\ud800")
    with pytest.raises(TsmError, match="tokens has dtype float64"):
        model.decode([0.5])


SYMBOLS = st.text(CHARACTERS, min_size=1, max_size=3) | st.sampled_from(
    [EOS, UNK, "_", " ", "\n", "\\n"]
)


@settings(max_examples=30)
@given(symbols=st.lists(SYMBOLS, min_size=1, max_size=12, unique=True), text=TEXTS)
@pytest.mark.parametrize("kind", TOKENIZERS)
def test_any_dictionary(tmp_path_factory, kind, symbols, text):
    """Dictionaries with symbols that look like escapes, white space or line ends, with and without <unk>."""
    tokenizer, vocab = plain_tokenizer(kind), Vocab(symbols, [1] * len(symbols))
    model = packed(tmp_path_factory.getbasetemp(), tokenizer, vocab.dumps(), len(vocab))
    every = list(range(len(vocab)))
    assert model.decode(every + every) == tokenizer.decode(every + every, vocab)
    for part in ("".join(symbols), text):
        try:
            expected = vocab.ids(symbols_of(tokenizer, part))
        except ValueError as refused:
            with pytest.raises(TsmError, match=r"is not in the dictionary of .* has no <unk>"):
                model.encode(part)
            assert "has no <unk>" in str(refused)
        else:
            assert model.encode(part).tolist() == expected


LINES = [
    "a 1",
    "b 02",
    "x y 3",
    "\\n 1",
    "\\s 1",
    "\\u{41} 3",
    "é 1",
    "<unk> 0",
    " 1",
    "a",
    "a  1",
    "a 1 ",
    "a -1",
    "a ٣",
]
LINES += [
    "a 9223372036854775807",
    "a 9223372036854775808",
    "a 99999999999999999999",
    "\\ 1",
    "\\",
    "\\x 1",
]
LINES += ["\\u{110000} 1", "\\u{d800} 1", "\\u{} 1", "\\u{4A} 1", "\\u{0000041} 1", "\\u{41 1", ""]


@settings(max_examples=60)
@given(
    lines=st.lists(st.sampled_from(LINES), max_size=4),
    end=st.sampled_from([b"\n", b"", b"\xff 1\n", b"\xed\xa0\x80 1\n"]),
)
def test_dictionaries_that_are_refused(tmp_path_factory, lines, end):
    """The core refuses the dictionaries that vocab.py refuses, and no others."""
    data, tokenizer = "\n".join(lines).encode() + end, plain_tokenizer("char")
    try:
        vocab = Vocab.loads(data)
    except ValueError:
        vocab = None
    with patch.object(Vocab, "loads", return_value=Vocab(["x"], [1])):  # package looks at it
        model = packed(tmp_path_factory.getbasetemp(), tokenizer, data or b"\n", size=9)
    if vocab is None:
        with pytest.raises(TsmError, match=r"^text\.dict") as refused:
            model.decode([])
        assert refused.value.kind == "bad file"
    else:
        every = list(range(len(vocab)))
        assert model.decode(every) == tokenizer.decode(every, vocab)


def test_a_dictionary_larger_than_the_model(tmp_path):
    vocab = Vocab(["a", "b", "c"], [1, 1, 1])
    with patch.object(Vocab, "loads", return_value=Vocab(["x"], [1])):
        model = packed(tmp_path, plain_tokenizer("word"), vocab.dumps(), size=2)
    with pytest.raises(TsmError, match=r"text\.dict has 3 symbols; accepted: at most 2"):
        model.encode("a")


def test_models_without_a_dictionary(load):
    for name in ("lm", "tagger"):
        assert load(name).tokenizer is None
        with pytest.raises(TsmError, match="the model has no dictionary; accepted:"):
            load(name).encode("a")
        with pytest.raises(TsmError, match="the model has no dictionary; accepted:"):
            load(name).decode([])


def test_a_damaged_model_of_sentencepiece(tmp_path):
    class Damaged(SentencePieceTokenizer):
        def __init__(self, model: bytes) -> None:
            self.model = model

    for damaged in (trained_pieces()[:100], b"x" * 100):
        model = packed(tmp_path, Damaged(damaged), Vocab(["a"], [1]).dumps(), 1)
        with pytest.raises(TsmError, match=r"^sentencepiece model") as refused:
            model.encode("a")
        assert refused.value.kind == "bad file"


def test_sentencepiece_without_its_package(text_model, monkeypatch):
    model, tokenizer, _ = text_model
    if tokenizer.kind != "sentencepiece":
        assert "sentencepiece" not in model.config["text"]["tokenizer"]
        return
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    fresh = Model.load(model.path)
    with pytest.raises(ModuleNotFoundError, match="run: pip install sentencepiece"):
        fresh.encode("a")


def test_the_tables_are_those_of_this_unicode():
    """The core's character tables equal Python's, if both have the same version of Unicode."""
    source = Path(__file__).parents[2] / "cpp/src/core/build_unicode.py"
    spec = importlib.util.spec_from_file_location("build_unicode", source)
    build_unicode = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_unicode)
    kept = build_unicode.TABLES.read_text()
    if f"from Unicode {unicodedata.unidata_version}." not in kept:
        pytest.skip(f"the tables are of another version of Unicode: {kept.splitlines()[0]}")
    assert build_unicode.build() == kept
