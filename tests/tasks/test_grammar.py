"""The built-in corpus is checked by a reader that was written from its description, not from its code."""

import collections
import hashlib
import itertools
import math

import numpy as np
import pytest

from tsm.plugin.data import grammar
from tsm.plugin.data.grammar import grammar_corpus, ngram_perplexity

NOUNS = {}  # form -> (topic, plural)
for _topic, _text in {**grammar.TOPICS, "any": grammar.COMMON}.items():
    for _pair in _text.split():
        for _i, _form in enumerate(_pair.split("/")):
            NOUNS[_form] = _topic, _i == 1
VERBS = {f: i == 1 for p in grammar.VERBS.split() for i, f in enumerate(p.split("/"))}
PARTNER = dict(p.split("/") for p in grammar.PAIRS.split())
NAMES = {n: p for p, names in grammar.SPEAKERS.items() for n in names.split()}


class End(Exception):
    pass


class Reader:
    """Reads words from left to right, and records the distance and the probability that each word must have."""

    def __init__(self, words):
        self.words, self.distance, self.p = words, [], []

    def peek(self):
        if len(self.p) == len(self.words):
            raise End
        return self.words[len(self.p)]

    def take(self, p, since=None):
        word = self.peek()
        self.distance.append(0 if since is None else len(self.p) - since)
        self.p.append(p)
        return word

    def expect(self, *words):
        for word in words:
            assert self.peek() == word
            self.take(1.0)

    def paragraph(self):
        named = heard = len(self.p)
        name = self.take(1 / 12)
        self.expect("spoke", "of", "the")
        self.topic = self.take(1 / 8)
        self.expect(":")
        j = 0
        while True:
            more = 1.0 if j == 0 else (j + 8) / (j + 11)
            word = self.peek()
            if word == "so":
                self.take(1 - more)
                break
            if word in NAMES.values():
                assert word == NAMES[name]
                self.take(more * 0.2, heard)
                heard = len(self.p) - 1
                self.expect("said", "that")
                word = self.peek()
                self.take(0.65 if word == "the" else 0.35 / 8)
            else:
                self.take(more * 0.45 if word == "the" else more * 0.35 / 8)
            if word == "the":
                self.clause()
                while self.peek() == "and":
                    self.take(0.15)
                    self.expect("the")
                    self.clause()
                assert self.peek() == "."
                self.take(0.85)
            else:
                self.pair(word, 1)
                self.expect(".")
            j += 1
        self.expect("spoke")
        assert self.peek() == name
        self.take(1.0, named)
        self.expect(".", "<eos>")

    def pair(self, opener, depth):
        at, j = len(self.p) - 1, 0
        while True:
            word = self.peek()
            if word == "the":
                self.take(0.85 if depth == 1 else 1.0)
                self.clause()
            else:
                assert depth == 1
                self.take(0.15 / 8)
                self.pair(word, 2)
            self.expect(",")
            more = (j + 0.8) / (j + 3.0)
            if self.peek() != "and":
                assert self.peek() == PARTNER[opener]
                self.take(1 - more, at)
                break
            self.take(more)
            j += 1
        self.expect("the")
        self.clause()

    def clause(self):
        self.subject(0)
        self.expect("the")
        self.noun()

    def noun(self):
        while self.peek() in grammar.ADJECTIVES.split():
            self.take(0.25 / 8)
        topic, plural = NOUNS[self.peek()]
        assert topic in (self.topic, "any")
        self.take(0.75 * (0.15 / 8 if topic == "any" else 0.85 / 12))
        return plural

    def verb(self, plural, share, since):
        assert VERBS[self.peek()] == plural
        self.take(share / 15, since)

    def subject(self, depth):
        plural = self.noun()
        at, j = len(self.p) - 1, 0
        while True:
            more = (j + 1) / (j + 3.5)
            word = self.peek()
            if word in VERBS:
                return self.verb(plural, 1 - more, at)
            j += 1
            if word == "that":
                self.take(more * 0.5)
                if self.peek() == "the":
                    assert depth < 2
                    self.take(0.4)
                    self.subject(depth + 1)
                    continue
                self.verb(plural, 0.6 if depth < 2 else 1.0, at)
            else:
                assert word in grammar.PREPOSITIONS.split()
                self.take(more * 0.5 / 6)
            self.expect("the")
            self.noun()


@pytest.fixture(scope="module")
def corpus():
    return grammar_corpus(seed=1, train=120_000, valid=20_000, test=20_000)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_reader_agrees_on_every_word(corpus, split):
    """Checks the structure, agreement, distances and probabilities of the whole text."""
    words, text = corpus.vocabulary, getattr(corpus, split)
    reader = Reader([words[i] for i in text.tokens])
    with pytest.raises(End):
        while True:
            reader.paragraph()
    assert len(reader.p) == len(text.tokens)
    assert reader.distance == text.distance.tolist()
    assert np.allclose(-np.log(reader.p), text.nats, atol=1e-9)


def test_floor(corpus):
    assert corpus.train.floor == pytest.approx(math.exp(corpus.train.nats.mean()))
    assert 5 < corpus.train.floor < 7


def test_every_table_adds_up():
    with pytest.raises(ValueError, match="adding up to 1"):
        grammar._Table({"a": 0.5, "b": 0.4})
    with pytest.raises(ValueError, match="above 0"):
        grammar._Table({"a": 1.0, "b": 0.0})


def test_memory_pays(corpus):
    words = corpus.vocabulary
    unigram, bigram = ngram_perplexity(corpus.train.tokens, corpus.test.tokens, len(words))
    assert corpus.test.floor * 2 < bigram < unigram < len(words)


def test_distances_are_many_and_heavy_tailed(corpus):
    distance = corpus.train.distance
    far = distance[distance > 0]
    assert 0.1 < len(far) / len(distance) < 0.25
    tail = [(far >= d).mean() for d in (10, 20, 40, 80, 160)]
    assert tail[0] > 0.2 and tail[-1] > 0.01
    assert all(b / a > 0.3 for a, b in itertools.pairwise(tail))  # not exponential


def test_vocabulary(corpus):
    words = corpus.vocabulary
    assert len(words) == len(set(words)) == 197
    used = np.unique(corpus.train.tokens)
    assert len(used) == len(words)


def test_seeds_splits_and_sizes():
    one = grammar_corpus(3, 5000, 700, 600)
    two = grammar_corpus(3, 5000, 700, 600)
    more = grammar_corpus(3, 9000, 700, 600)
    other = grammar_corpus(4, 5000, 700, 600)
    assert [len(text.tokens) for text in one[:3]] == [5000, 700, 600]
    for name in ("tokens", "distance", "nats"):
        first = getattr(one.train, name)
        assert np.array_equal(first, getattr(two.train, name))
        assert np.array_equal(first, getattr(more.train, name)[:5000])
    assert not np.array_equal(one.train.tokens, other.train.tokens)
    assert not np.array_equal(one.train.tokens[:600], one.test.tokens)
    assert [t.dtype for t in (one.train.tokens, one.train.distance)] == [np.int64, np.int32]


def test_golden_text():
    corpus = grammar_corpus(1, 5000, 10, 10)
    text = " ".join(corpus.vocabulary[i] for i in corpus.train.tokens)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "efddc4f96b9ce0a5"


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="valid is 0 words; accepted: 1 or more"):
        grammar_corpus(1, 10, 0, 10)
    with pytest.raises(ValueError, match="seed is -3"):
        grammar_corpus(-3, 10, 10, 10)


def test_ngram_perplexity_against_counting():
    rng = np.random.Generator(np.random.PCG64(4))
    train, text = rng.integers(0, 6, 80), rng.integers(0, 7, 40)  # 6 is never in training
    n1, n2 = (
        collections.Counter(train),
        collections.Counter(itertools.pairwise(train)),
    )
    logs = [0.0, 0.0]
    for v, w in itertools.pairwise(text):
        p = (n1[w] + 1) / (80 + 7)
        after = {b: c for (a, b), c in n2.items() if a == v}
        total = sum(after.values())
        q = p
        if total:
            q = (max(after.get(w, 0) - 0.75, 0) + 0.75 * len(after) * p) / total
        logs[0] -= math.log(p) / 39
        logs[1] -= math.log(q) / 39
    assert ngram_perplexity(train, text, 7) == pytest.approx(tuple(map(math.exp, logs)))
