"""Parts of a text add up to the text of all tokens; a stop text ends it, however it is split; JSON is read
strictly; numbers in answers keep their bits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tsm.runtime.serving.streams.answers import encoded
from tsm.runtime.serving.streams.stops import StopText
from tsm.runtime.serving.streams.text import TextParts
from tsm.runtime.serving.transport.fields import Fields, parse, shown
from tsm.runtime.serving.transport.off_loop import LARGE
from tsm.runtime.serving.transport.problems import Problem


class Words:
    """A stand-in with the `decode` of a word model, or of a model whose tokens are UTF-8 bytes."""

    def __init__(self, kind):
        self.kind = kind

    def decode(self, tokens):
        if self.kind == "words":
            return " ".join(f"w{token}" for token in tokens)
        return bytes(tokens).decode(errors="replace")


@pytest.mark.parametrize("kind", ["words", "bytes"])
@settings(max_examples=40, deadline=None)
@given(st.text(max_size=120), st.lists(st.integers(1, 9), min_size=1))
def test_parts_of_a_text(kind, text, cuts):
    tokens, parts, given_out = list(text.encode()), TextParts(Words(kind)), ""
    at = i = 0
    while at < len(tokens):
        given_out += parts.add(tokens[at : at + cuts[i % len(cuts)]])
        at, i = at + cuts[i % len(cuts)], i + 1
    assert given_out + parts.close() == Words(kind).decode(tokens)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 5), min_size=1),
)
def test_stop_texts(text, stops, cuts):
    ends = [text.find(stop) for stop in stops if stop in text]
    found, stopped, at, i, state = "", False, 0, 0, StopText(stops)
    while at < len(text) and not stopped:
        part, stopped = state.add(text[at : at + cuts[i % len(cuts)]])
        found, at, i = found + part, at + cuts[i % len(cuts)], i + 1
    found += "" if stopped else state.close("")
    assert stopped == bool(ends)
    if not ends:
        assert found == text
    elif len(stops) == 1:
        assert found == text[: ends[0]]
    assert text.startswith(found) and not any(stop in found for stop in stops)


@pytest.mark.parametrize(
    "body, message",
    [
        (b"\xff", "not UTF-8"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[1]", "not an object"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
    ],
)
def test_json_that_is_refused(body, message):
    with pytest.raises(Problem, match=message) as caught:
        parse(body)
    assert caught.value.status == 400


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
                    lambda inner: st.lists(inner, max_size=3), max_leaves=5))  # fmt: skip
def test_fields_refuse_what_they_do_not_take(value):
    for take, good in (
        (lambda f: f.integer("x", 3, 0, 9), type(value) is int and 0 <= value <= 9),
        (lambda f: f.flag("x"), isinstance(value, bool)),
        (lambda f: f.choice("x", None, "a", "b"), value in ("a", "b")),
    ):
        fields = Fields(json.loads(json.dumps({"x": value})))
        if value is None or good:
            take(fields)
            fields.end()
        else:
            with pytest.raises(Problem, match=r"x = .*accepted"):
                take(fields)
    with pytest.raises(Problem, match="unknown field 'x'; accepted: y"):
        fields = Fields({"x": value})
        fields.take("y")
        fields.end()


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_numbers_keep_their_bits(zero):
    numbers = np.float32([zero, -0.5, 1 / 3, -1e-10, 3e38, zero])
    for sent in (numbers, numbers.reshape(2, 3)):
        found = np.float32(json.loads(encoded({"logits": sent}))["logits"])
        assert found.tobytes() == sent.tobytes()


@pytest.mark.parametrize("number", ["9" * 500, "-" + "9" * 500])
def test_the_digits_of_integers_in_a_large_body(number):
    """Reading one takes the square of their number."""
    text = '"' + "0" * LARGE + '"'
    with pytest.raises(Problem, match=r"an integer has .* digits; accepted: at most 400"):
        parse(f'{{"text": {text}, "tokens": [{number}]}}')
    assert parse(f'{{"text": {text}, "tokens": [1e9]}}')["tokens"] == [1e9]


def test_only_the_beginning_of_a_wrong_value_is_shown():
    """The rest may be a megabyte; here it could not be shown at all."""
    assert shown([1, [2]]) == "[1, [2]]"
    assert shown([1] * 60 + [object()]) == "[" + "1, " * 18 + "1," + "..."
